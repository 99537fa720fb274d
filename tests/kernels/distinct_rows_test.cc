// Tests of the distinct rows that a batch's indices name: each row once, in the order of first
// occurrence, and for every index the position of its row; lists that grow over the micro-batches
// of a step; equal results on every backend.
#include "kernels/distinct_rows.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kernels/cpu/team.h"

namespace trainyard::kernels {
namespace {

using Indices = std::vector<int32_t>;

struct Found {
  Indices rows, position, kept;
  bool operator==(const Found&) const = default;
};

/// `own` are this rank's indices, `counted` those of all ranks. `kept`: the list of the
/// micro-batches before `micro_step`; empty if a step is one batch.
struct Batch {
  Indices own, counted;
  int64_t table = 1, size = 1;
  Indices kept = {};
  int64_t micro_step = 0;
};

template <typename Kernel>
Found find(const Batch& b, const Kernel& kernel) {
  Found f{Indices(static_cast<size_t>(b.size), -7), Indices(b.own.size(), -7), b.kept};
  const DistinctRowsParams p{std::ssize(b.own), std::ssize(b.counted), b.size, b.table};
  const bool keeps = !b.kept.empty();
  kernel(p,
         DistinctRowsOperands{b.own.data(), b.counted.data(), keeps ? &b.micro_step : nullptr,
                              keeps ? f.kept.data() : nullptr, f.rows.data(), f.position.data()});
  return f;
}
Found find_by_reference(const Batch& b) {
  return find(b, [](const DistinctRowsParams& p, const DistinctRowsOperands& o) {
    reference::distinct_rows<float>(p, o, {});
  });
}
Found find_by_cpu(const Batch& b, int threads) {
  cpu::Team team(threads);
  return find(b, [&](const DistinctRowsParams& p, const DistinctRowsOperands& o) {
    const auto bytes = static_cast<size_t>(cpu::distinct_rows_workspace_bytes(p));
    std::vector<std::byte> memory(bytes + kHostAlignment);
    auto* const workspace =
        reinterpret_cast<void*>(round_up(reinterpret_cast<int64_t>(memory.data()), kHostAlignment));
    cpu::distinct_rows(p, o, {team, workspace});
  });
}

TEST(DistinctRows, AreInOrderOfFirstAppearance) {
  const Indices indices = {5, 2, 5, 9, 2, 0};
  const Found f = find_by_reference({indices, indices, 10, 6});
  EXPECT_EQ(f.rows, (Indices{5, 2, 9, 0, -1, -1}));
  EXPECT_EQ(f.position, (Indices{0, 1, 0, 2, 1, 3}));
}

TEST(DistinctRows, OfAllRanksHaveOneIndexEach) {
  const Indices all = {4, 4, 7, 1, 7, 4};
  const Found first = find_by_reference({{4, 4, 7}, all, 8, 6});
  const Found last = find_by_reference({{1, 7, 4}, all, 8, 6});
  EXPECT_EQ(first.rows, last.rows);
  EXPECT_EQ(first.position, (Indices{0, 0, 1}));
  EXPECT_EQ(last.position, (Indices{2, 1, 0}));
}

// A row keeps its position when later micro-batches add rows, and a new step starts with an empty
// list.
TEST(DistinctRows, GrowOverMicroBatchesAndStartEmptyEachStep) {
  Indices kept(5, 3);  // the list of the previous step, which must be ignored
  const std::vector<std::pair<Indices, Found>> batches = {
      {{8, 6}, {{8, 6, -1, -1, -1}, {0, 1}, {8, 6, -1, -1, -1}}},
      {{6, 2}, {{8, 6, 2, -1, -1}, {1, 2}, {8, 6, 2, -1, -1}}},
      {{2, 8}, {{8, 6, 2, -1, -1}, {2, 0}, {8, 6, 2, -1, -1}}},
      {{1, 9}, {{8, 6, 2, 1, 9}, {3, 4}, {8, 6, 2, 1, 9}}}};
  for (int64_t step = 0; step < 2; ++step) {
    for (size_t m = 0; m < batches.size(); ++m) {
      const auto& [indices, expected] = batches[m];
      const Batch b{indices, indices, 10, 5, kept, static_cast<int64_t>(m)};
      EXPECT_EQ(find_by_reference(b), expected) << m;
      EXPECT_EQ(find_by_cpu(b, 2), expected) << m;
      kept = expected.kept;
    }
  }
}

TEST(DistinctRows, AreTheSameOnEveryTeam) {
  for (const auto& [table, count] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 900}, {50, 900}, {1 << 24, 900}, {300, 70000}}) {
    Indices indices;
    for (int64_t i = 0; i < count; ++i) {
      indices.push_back(static_cast<int32_t>(i * 48271 % 65537 % table));
    }
    const Batch b{indices, indices, table, std::min(table, count)};
    const Found expected = find_by_reference(b);
    EXPECT_EQ(find_by_cpu(b, 1), expected);
    EXPECT_EQ(find_by_cpu(b, 3), expected);
    const std::set<int32_t> different(indices.begin(), indices.end());
    const auto found = std::ranges::count_if(expected.rows, [](int32_t v) { return v >= 0; });
    EXPECT_EQ(found, std::ssize(different));
    for (size_t i = 0; i < indices.size(); ++i) {
      ASSERT_EQ(expected.rows[static_cast<size_t>(expected.position[i])], indices[i]);
    }
  }
}

TEST(DistinctRows, RefuseViolationsOfTheContract) {
  const Indices indices = {1, 2, 3};
  EXPECT_THROW(find_by_reference({indices, indices, 10, 2}), ContractError);
  EXPECT_THROW(find_by_reference({indices, {1, 2}, 10, 3}), ContractError);
  EXPECT_THROW(find_by_cpu({indices, indices, 10, 2}, 1), ContractError);
}

}  // namespace
}  // namespace trainyard::kernels
