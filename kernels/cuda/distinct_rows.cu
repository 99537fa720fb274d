// Access   one mark of 4 B for each row of the table, all of which are initialized. Then each
//          index, including those kept from the step's other micro-batches, is read three times and
//          accesses its row's mark, which costs a whole cache line for 4 B.
// Time     a table of 1 M rows: 1 us for the marks; 65536 indices: about 2 us for each of the
//          following kernels, one of which is a single block.
#include "kernels/distinct_rows.h"

#include <limits>

#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {
namespace {

constexpr int kPart = kBlockThreads;  // entries that a block counts at a time
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

/// The kept rows and then the counted indices, as one list of entries.
struct Entries {
  DistinctRowsParams p;
  DistinctRowsOperands o;

  TRAINYARD_HD int64_t size() const { return (o.kept == nullptr ? 0 : p.size) + p.counted; }
  TRAINYARD_HD int64_t parts() const { return (size() + kPart - 1) / kPart; }
  /// Entry i of the list, -1 if it is empty.
  TRAINYARD_DEVICE int32_t at(int64_t i) const {
    if (o.kept == nullptr) return o.counted[i];
    if (i >= p.size) return o.counted[i - p.size];
    return *o.micro_step > 0 ? o.kept[i] : -1;
  }
};

struct Numbers {
  int32_t* first;   // [V]: the first entry that names the row
  int32_t* number;  // [entries]: position in `rows`, for entries that are the first of their row
  int32_t* before;  // [parts]: first entries in the part, then replaced by the number in all parts
                    // before it
};

TRAINYARD_KERNEL void clear_first(int64_t rows, int32_t* first) {
  for (int64_t v = thread_index(); v < rows; v += thread_count()) first[v] = kNever;
}

// The smallest entry does not depend on the order of threads.
TRAINYARD_KERNEL void find_first(Entries entries, int32_t* first) {
  for (int64_t i = thread_index(); i < entries.size(); i += thread_count()) {
    const int32_t v = entries.at(i);
    if (v >= 0) atomicMin(first + v, static_cast<int32_t>(i));
  }
}

/// Whether entry i is the first entry of its row.
TRAINYARD_DEVICE bool is_first(const Entries& entries, const int32_t* first, int64_t i) {
  if (i >= entries.size()) return false;
  const int32_t v = entries.at(i);
  return v >= 0 && first[v] == static_cast<int32_t>(i);
}

/// Returns the number of threads of the block whose flag is set, and in *before_me the number of
/// those before this thread.
TRAINYARD_DEVICE int32_t count_flags(bool flag, int32_t* before_me) {
  TRAINYARD_SHARED(int32_t, sums, [kPart]);
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
  __syncthreads();  // for the flags of the next call
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

// Exclusive prefix sum in one block: each thread sums a run of parts, then adds the runs before its
// own.
TRAINYARD_KERNEL void sum_parts(int64_t parts, int32_t* before) {
  TRAINYARD_SHARED(int32_t, runs, [kPart]);
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

// Initializes `rows`; runs before number_first().
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
  const int64_t entries = p.size + p.counted;  // `kept` may be absent, which needs less
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
