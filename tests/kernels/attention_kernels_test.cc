// Catches: a fused attention that reads another head's keys, sees a key too many or too few,
// depends on the number of threads, or takes memory or reads keys for pairs that no query sees.
// Shapes and limits are drawn; the plain loops in double are the judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels {
namespace {

using Floats = std::vector<float>;

/// A problem and its operands; q, k and v are in tensors of their own, or side by side in `q`.
struct Problem {
  AttentionDims d{};
  bool packed = false;
  Floats q, k, v, dy;
  std::vector<int32_t> positions, counts;
  int64_t step = 3;

  SeenKeys seen() const {
    return {.positions = positions.empty() ? nullptr : positions.data(),
            .key_counts = counts.empty() ? nullptr : counts.data()};
  }
  int64_t kv_offset(int part) const { return packed ? d.H * d.D + part * d.key_heads() * d.D : 0; }
};

struct Results {
  Floats y, lse, dq, dk, dv;
};

template <typename T>
std::vector<T> widened(const Floats& x) {
  return std::vector<T>(x.begin(), x.end());
}

/// Computes forward and backward in T with run_forward(operands) and run_backward(operands).
template <typename T, typename Forward, typename Backward>
Results compute(const Problem& p, const Forward& run_forward, const Backward& run_backward) {
  const AttentionDims& d = p.d;
  const auto q = widened<T>(p.q), k = widened<T>(p.k), v = widened<T>(p.v), dy = widened<T>(p.dy);
  const T nan = std::numeric_limits<T>::quiet_NaN();  // whatever is not written stays NaN
  std::vector<T> y(dy.size(), nan), lse(static_cast<size_t>(d.N * d.H * d.Tq), nan);
  std::vector<T> dq(q.size(), nan), dk(k.size(), nan), dv(v.size(), nan);
  const T* keys = p.packed ? q.data() + p.kv_offset(0) : k.data();
  const T* values = p.packed ? q.data() + p.kv_offset(1) : v.data();
  run_forward(AttentionOperands<T>{.step = &p.step,
                                   .q = q.data(),
                                   .k = keys,
                                   .v = values,
                                   .y = y.data(),
                                   .lse = lse.data(),
                                   .seen = p.seen()});
  run_backward(AttentionGradOperands<T>{.step = &p.step,
                                        .q = q.data(),
                                        .k = keys,
                                        .v = values,
                                        .y = y.data(),
                                        .lse = lse.data(),
                                        .dy = dy.data(),
                                        .dq = dq.data(),
                                        .dk = p.packed ? dq.data() + p.kv_offset(0) : dk.data(),
                                        .dv = p.packed ? dq.data() + p.kv_offset(1) : dv.data(),
                                        .seen = p.seen()});
  const auto narrow = [](const std::vector<T>& x) { return Floats(x.begin(), x.end()); };
  return {narrow(y), narrow(lse), narrow(dq), narrow(dk), narrow(dv)};
}

Results by_reference(const Problem& p) {
  return compute<double>(
      p, [&](const auto& o) { reference::attention_forward(p.d, o); },
      [&](const auto& o) { reference::attention_backward(p.d, o); });
}

struct AlignedBytes {
  explicit AlignedBytes(int64_t bytes)
      : data(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))) {}
  ~AlignedBytes() { std::free(data); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  void* data;
};

Results on_cpu(const Problem& p, int threads) {
  cpu::Team team(threads);
  return compute<float>(
      p,
      [&](const auto& o) {
        const AlignedBytes memory(cpu::attention_forward_workspace_bytes(p.d, team));
        cpu::attention_forward(p.d, o, {team, memory.data});
      },
      [&](const auto& o) {
        const AlignedBytes memory(cpu::attention_backward_workspace_bytes(p.d, team));
        cpu::attention_backward(p.d, o, {team, memory.data});
      });
}

void expect_near(const Floats& got, const Floats& expected, double relative, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double scale = 0.05;  // of rounding errors of results that are 0
  for (const float x : expected) scale = std::max(scale, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], relative * scale) << what << "[" << i << "]";
  }
}

void expect_near(const Results& got, const Results& expected, double relative) {
  expect_near(got.y, expected.y, relative, "y");
  expect_near(got.lse, expected.lse, relative, "lse");
  expect_near(got.dq, expected.dq, relative, "dq");
  expect_near(got.dk, expected.dk, relative, "dk");
  expect_near(got.dv, expected.dv, relative, "dv");
}

bool same_bits(const Results& a, const Results& b) {
  return a.y == b.y && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv;
}

using Random = std::mt19937;
int64_t between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
}
Floats drawn(Random& random, int64_t count) {
  Floats x(static_cast<size_t>(count));
  for (float& v : x) v = static_cast<float>(static_cast<int32_t>(random())) / 2147483648.0f;
  return x;
}

/// Draws the operands of p.d, whose sizes are set.
void draw_operands(Random& random, Problem& p) {
  AttentionDims& d = p.d;
  const int64_t q_width = d.H * d.D, kv_width = d.key_heads() * d.D;
  d.q_row = p.packed ? q_width + 2 * kv_width : q_width;
  d.kv_row = p.packed ? d.q_row : kv_width;
  p.q = drawn(random, d.N * d.Tq * d.q_row);
  if (!p.packed) {
    p.k = drawn(random, d.N * d.Tk * d.kv_row);
    p.v = drawn(random, d.N * d.Tk * d.kv_row);
  }
  p.dy = drawn(random, d.N * d.Tq * q_width);
}

/// Fills positions with documents of random lengths, one after the other.
void draw_documents(Random& random, Problem& p) {
  for (int64_t n = 0; n < p.d.N; ++n) {
    int64_t left = 0, at = 0;
    for (int64_t i = 0; i < p.d.Tq; ++i, ++at, --left) {
      if (left == 0) {
        left = between(random, 1, 90);
        at = 0;
      }
      p.positions.push_back(static_cast<int32_t>(at));
    }
  }
}

Problem draw_problem(uint32_t seed) {
  Random random(seed);
  Problem p;
  AttentionDims& d = p.d;
  d.N = between(random, 1, 3);
  d.kv_heads = between(random, 1, 3);
  d.H = d.kv_heads * between(random, 1, 3);
  d.D = between(random, 1, 3) == 1 ? between(random, 1, 40) : 16 * between(random, 1, 3);
  d.Tq = between(random, 1, 3) == 1 ? between(random, 1, 9) : between(random, 1, 150);
  d.Tk = between(random, 1, 200);
  d.scale = 0.5;
  d.dropout = between(random, 0, 3) == 0 ? 0.25 : 0;
  d.causal = between(random, 0, 2) != 0;
  p.packed = between(random, 0, 1) != 0;
  if (d.causal && between(random, 0, 1) != 0) d.window = between(random, 1, 130);
  const int64_t kind = between(random, 0, 2);  // of positions: none, documents, a cache
  if (p.packed || (d.causal && kind == 1)) d.Tk = d.Tq;
  draw_operands(random, p);
  if (d.causal && kind == 1) draw_documents(random, p);
  if (d.causal && kind == 2) {
    d.cached = true;  // values that no caller should give are allowed: fewer than 0, too many
    for (int64_t i = 0; i < d.N * d.Tq; ++i) {
      p.positions.push_back(static_cast<int32_t>(between(random, -2, d.Tk + 3)));
    }
  }
  if (!d.causal && kind > 0) {
    for (int64_t n = 0; n < d.N; ++n) {
      p.counts.push_back(static_cast<int32_t>(between(random, 0, d.Tk + 3)));
    }
  }
  return p;
}

std::string words_of(const Problem& p) {
  const AttentionDims& d = p.d;
  std::string words;
  for (const auto& [name, value] : {std::pair{"N", d.N},
                                    {"H", d.H},
                                    {"KV", d.key_heads()},
                                    {"Tq", d.Tq},
                                    {"Tk", d.Tk},
                                    {"D", d.D},
                                    {"causal", int64_t{d.causal}},
                                    {"window", d.window},
                                    {"cached", int64_t{d.cached}},
                                    {"packed", int64_t{p.packed}},
                                    {"positions", std::ssize(p.positions)},
                                    {"counts", std::ssize(p.counts)}}) {
    words += std::string(name) + "=" + std::to_string(value) + " ";
  }
  return words;
}

TEST(AttentionKernels, ComputeDrawnProblemsAsTheReferenceDoesOnAnyTeam) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Problem p = draw_problem(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + words_of(p));
    const Results one = on_cpu(p, 1);
    expect_near(one, by_reference(p), 2e-5);
    if (::testing::Test::HasFatalFailure()) return;
    for (const int threads : {2, 5}) ASSERT_TRUE(same_bits(on_cpu(p, threads), one)) << threads;
  }
}

/// Returns the part of a row of `width` numbers a position that belongs to positions [begin, end).
Floats cut(const Floats& x, int64_t width, int64_t begin, int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

/// A row of documents that end at `ends`, and one of them alone.
Problem row_of_documents(const std::vector<int64_t>& ends) {
  Problem p;
  p.d = {.N = 1,
         .H = 6,
         .Tq = ends.back(),
         .Tk = ends.back(),
         .D = 16,
         .q_row = 0,
         .kv_row = 0,
         .scale = 0.25,
         .causal = true};
  p.d.kv_heads = 2;
  Random random(7);
  draw_operands(random, p);
  int64_t at = 0;
  for (const int64_t end : ends) {
    for (int64_t first = at; at < end; ++at) {
      p.positions.push_back(static_cast<int32_t>(at - first));
    }
  }
  return p;
}
Problem one_document(const Problem& row, int64_t begin, int64_t end) {
  Problem p = row;
  p.d.Tq = p.d.Tk = end - begin;
  p.q = cut(row.q, row.d.q_row, begin, end);
  p.k = cut(row.k, row.d.kv_row, begin, end);
  p.v = cut(row.v, row.d.kv_row, begin, end);
  p.dy = cut(row.dy, row.d.q_row, begin, end);
  p.positions.clear();
  return p;
}

TEST(AttentionKernels, ADocumentInARowIsWhatItIsAlone) {
  const std::vector<int64_t> ends = {1, 38, 130, 131, 259, 300};
  const Problem row = row_of_documents(ends);
  const Results together = on_cpu(row, 2);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    SCOPED_TRACE("[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
    const Results alone = on_cpu(one_document(row, begin, end), 1);
    expect_near(cut(together.y, row.d.q_row, begin, end), alone.y, 1e-6, "y");
    expect_near(cut(together.dq, row.d.q_row, begin, end), alone.dq, 1e-6, "dq");
    expect_near(cut(together.dk, row.d.kv_row, begin, end), alone.dk, 1e-6, "dk");
    expect_near(cut(together.dv, row.d.kv_row, begin, end), alone.dv, 1e-6, "dv");
    begin = end;
  }
}

// Tiles have 64 keys. NaN in a key that is in no tile of a query's keys would spread if it were
// read.
TEST(AttentionKernels, TilesThatNoQuerySeesAreNotRead) {
  Problem documents = row_of_documents({256, 320});
  std::fill_n(documents.k.begin(), 256 * documents.d.kv_row,
              std::numeric_limits<float>::quiet_NaN());
  const Results second = on_cpu(documents, 2);
  const Floats own = cut(second.y, documents.d.q_row, 256, 320);
  EXPECT_TRUE(std::ranges::all_of(own, [](float x) { return std::isfinite(x); }));

  Problem window = row_of_documents({320});
  window.d.window = 65;
  std::fill_n(window.k.begin(), 64 * window.d.kv_row, std::numeric_limits<float>::quiet_NaN());
  const Floats last = cut(on_cpu(window, 1).y, window.d.q_row, 192, 320);
  EXPECT_TRUE(std::ranges::all_of(last, [](float x) { return std::isfinite(x); }));

  Problem cache = row_of_documents({320});
  cache.d.cached = true;
  cache.d.Tq = 2;
  cache.positions = {100, 101};
  std::fill(cache.k.begin() + 128 * cache.d.kv_row, cache.k.end(),
            std::numeric_limits<float>::quiet_NaN());
  const Floats new_tokens = cut(on_cpu(cache, 1).y, cache.d.q_row, 0, 2);
  EXPECT_TRUE(std::ranges::all_of(new_tokens, [](float x) { return std::isfinite(x); }));
}

TEST(AttentionKernels, MemoryGrowsWithTheContextNotWithItsSquare) {
  cpu::Team team(4);
  const auto bytes = [&](int64_t context) {
    AttentionDims d = row_of_documents({context}).d;
    d.N = 8;
    return std::pair{cpu::attention_forward_workspace_bytes(d, team),
                     cpu::attention_backward_workspace_bytes(d, team)};
  };
  const auto [forward_1, backward_1] = bytes(512);
  const auto [forward_2, backward_2] = bytes(1024);
  const auto [forward_4, backward_4] = bytes(2048);
  EXPECT_EQ(forward_4 - forward_2, 2 * (forward_2 - forward_1));
  EXPECT_EQ(backward_4 - backward_2, 2 * (backward_2 - backward_1));
}

}  // namespace
}  // namespace trainyard::kernels
