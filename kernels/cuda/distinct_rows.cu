// Access   one mark of 4 B for each row of the table, all of which are set; then each index, and
//          what is kept of the step's other micro-batches, is read three times and looks at its
//          row's mark, a line of memory that is read for 4 B of it.
// Time     a table of 1M rows: 1 us for the marks; 65536 indices: some 2 us for each of the
//          kernels behind, of which one is a single block.
#include "kernels/distinct_rows.h"

#include <limits>

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int kPart = kBlockThreads;  // entries that a block counts
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

/// What is kept and then what is counted, as one list of entries.
struct Entries {
  DistinctRowsParams p;
  DistinctRowsOperands o;

  TRAINYARD_HD int64_t size() const { return (o.kept == nullptr ? 0 : p.size) + p.counted; }
  TRAINYARD_HD int64_t parts() const { return (size() + kPart - 1) / kPart; }
  /// -1: none is there.
  TRAINYARD_DEVICE int32_t at(int64_t i) const {
    if (o.kept == nullptr) return o.counted[i];
    if (i >= p.size) return o.counted[i - p.size];
    return *o.micro_step > 0 ? o.kept[i] : -1;
  }
};

struct Numbers {
  int32_t* first;   // [V]: the first entry that names the row
  int32_t* number;  // [entries]: of an entry that is the first of its row
  int32_t* before;  // [parts]: first entries of a part; and then of all parts before
};

TRAINYARD_KERNEL void clear_first(int64_t rows, int32_t* first) {
  for (int64_t v = thread_index(); v < rows; v += thread_count()) first[v] = kNever;
}

// The least entry is the same whoever comes first.
TRAINYARD_KERNEL void find_first(Entries entries, int32_t* first) {
  for (int64_t i = thread_index(); i < entries.size(); i += thread_count()) {
    const int32_t v = entries.at(i);
    if (v >= 0) atomicMin(first + v, static_cast<int32_t>(i));
  }
}

/// Of this thread's entry of a part: whether it is the first of its row.
TRAINYARD_DEVICE bool is_first(const Entries& entries, const int32_t* first, int64_t i) {
  if (i >= entries.size()) return false;
  const int32_t v = entries.at(i);
  return v >= 0 && first[v] == static_cast<int32_t>(i);
}

/// How many threads of the block have a flag, and how many of those before this one.
TRAINYARD_DEVICE int32_t count_flags(bool flag, int32_t* before_me) {
  TRAINYARD_SHARED int32_t sums[kPart];
  const auto me = static_cast<int>(threadIdx.x);
  sums[me] = flag ? 1 : 0;
  __syncthreads();
  for (int step = 1; step < kPart; step *= 2) {
    const int32_t more = me >= step ? sums[me - step] : 0;
    __syncthreads();
    sums[me] += more;
    __syncthreads();
  }
  *before_me = sums[me] - (flag ? 1 : 0);
  const int32_t all = sums[kPart - 1];
  __syncthreads();  // for the next one's flags
  return all;
}

TRAINYARD_KERNEL void count_first(Entries entries, Numbers to) {
  for (int64_t part = blockIdx.x; part < entries.parts(); part += gridDim.x) {
    int32_t before = 0;
    const int32_t all =
        count_flags(is_first(entries, to.first, part * kPart + threadIdx.x), &before);
    if (threadIdx.x == 0) to.before[part] = all;
  }
}

// One block: thread t sums a run of parts, then the runs before its own.
TRAINYARD_KERNEL void sum_parts(int64_t parts, int32_t* before) {
  TRAINYARD_SHARED int32_t runs[kPart];
  const auto me = static_cast<int>(threadIdx.x);
  const int64_t each = (parts + kPart - 1) / kPart;
  const int64_t begin = std::min(parts, me * each), end = std::min(parts, begin + each);
  int32_t mine = 0;
  for (int64_t part = begin; part < end; ++part) mine += before[part];
  runs[me] = mine;
  __syncthreads();
  int32_t at = 0;
  for (int t = 0; t < me; ++t) at += runs[t];
  for (int64_t part = begin; part < end; ++part) {
    const int32_t size = before[part];
    before[part] = at;
    at += size;
  }
}

TRAINYARD_KERNEL void number_first(Entries entries, Numbers to) {
  for (int64_t part = blockIdx.x; part < entries.parts(); part += gridDim.x) {
    const int64_t i = part * kPart + threadIdx.x;
    const bool is_new = is_first(entries, to.first, i);
    int32_t before = 0;
    (void)count_flags(is_new, &before);
    if (!is_new) continue;
    const int32_t number = to.before[part] + before;
    to.number[i] = number;
    entries.o.rows[number] = entries.at(i);
  }
}

// `rows` is -1 before number_first().
TRAINYARD_KERNEL void clear_rows(int64_t size, int32_t* rows) {
  for (int64_t j = thread_index(); j < size; j += thread_count()) rows[j] = -1;
}

TRAINYARD_KERNEL void place_indices(Entries entries, Numbers numbers) {
  const DistinctRowsOperands& o = entries.o;
  for (int64_t i = thread_index(); i < entries.p.count; i += thread_count()) {
    o.position[i] = numbers.number[numbers.first[o.index[i]]];
  }
  if (o.kept == nullptr) return;
  for (int64_t j = thread_index(); j < entries.p.size; j += thread_count()) o.kept[j] = o.rows[j];
}

}  // namespace

int64_t distinct_rows_workspace_bytes(const DistinctRowsParams& p) {
  const int64_t entries = p.size + p.counted;  // whether or not anything is kept
  return (p.table + entries + (entries + kPart - 1) / kPart) *
         static_cast<int64_t>(sizeof(int32_t));
}

void distinct_rows(const DistinctRowsParams& p, const DistinctRowsOperands& o, Run run) {
  check(p, o);
  const Entries entries{p, o};
  auto* const memory = workspace_of<int32_t>("distinct_rows", run);
  const Numbers numbers{memory, memory + p.table, memory + p.table + entries.size()};
  const Grid of_parts{std::min(entries.parts(), kBlocksMax), kPart};
  launch(grid_for(p.table), run.stream, clear_first, p.table, numbers.first);
  launch(grid_for(p.size), run.stream, clear_rows, p.size, o.rows);
  launch(grid_for(entries.size()), run.stream, find_first, entries, numbers.first);
  launch(of_parts, run.stream, count_first, entries, numbers);
  launch({1, kPart}, run.stream, sum_parts, entries.parts(), numbers.before);
  launch(of_parts, run.stream, number_first, entries, numbers);
  launch(grid_for(std::max(p.count, p.size)), run.stream, place_indices, entries, numbers);
}

}  // namespace trainyard::kernels::cuda
