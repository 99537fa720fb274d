// Lookups in a table split into parts equal those in the whole table: for each index, one part
// returns the row and all others 0; the parts' gradients are the rows of the whole gradient, to the
// bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/embedding.h"

namespace trainyard::kernels {
namespace {

struct Lookup {
  int64_t count, rows, width, parts;
};

template <typename T>
std::vector<T> numbers(int64_t count, double phase) {
  std::vector<T> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<T>(std::sin(static_cast<double>(i) * 1.7 + phase));
  }
  return all;
}

/// `run` calls the functions of a backend.
template <typename T, typename Run>
void expect_parts_of_a_whole(const Lookup& l, const Run& run) {
  std::vector<int32_t> index(static_cast<size_t>(l.count));
  for (int64_t i = 0; i < l.count; ++i) {
    index[static_cast<size_t>(i)] = static_cast<int32_t>((i * i * 5 + i + 2) % l.rows);
  }
  const std::vector<T> table = numbers<T>(l.rows * l.width, 0),
                       dy = numbers<T>(l.count * l.width, 1);
  // Reference loops, in the order of summation that the contract defines.
  std::vector<T> dtable(table.size());
  for (int64_t i = 0; i < l.count * l.width; ++i) {
    const int64_t row = index[static_cast<size_t>(i / l.width)];
    dtable[static_cast<size_t>(row * l.width + i % l.width)] += dy[static_cast<size_t>(i)];
  }
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const int64_t each = (l.rows + l.parts - 1) / l.parts;
  std::vector<int64_t> found(dy.size());
  for (int64_t part = 0; part < l.parts; ++part) {
    SCOPED_TRACE(part);
    const GatherDims d{l.count, each, l.width, part * each};
    std::vector<T> own(static_cast<size_t>(each * l.width)), y(dy.size(), nan),
        down(own.size(), nan);
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t at = static_cast<size_t>(part * each * l.width) + i;
      own[i] = at < table.size() ? table[at] : nan;  // a lookup must not read beyond the table
    }
    run.forward(d, own.data(), index.data(), y.data());
    for (int64_t i = 0; i < l.count * l.width; ++i) {
      const int64_t row = index[static_cast<size_t>(i / l.width)];
      const auto at = static_cast<size_t>(i);
      const bool is_here = row / each == part;
      EXPECT_EQ(y[at], is_here ? table[static_cast<size_t>(row * l.width + i % l.width)] : T(0))
          << i;
      found[at] += is_here ? 1 : 0;
    }
    run.backward(d, index.data(), dy.data(), down.data());
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t at = static_cast<size_t>(part * each * l.width) + i;
      EXPECT_EQ(down[i], at < dtable.size() ? dtable[at] : T(0)) << i;
    }
  }
  for (const int64_t parts : found) EXPECT_EQ(parts, 1);
}

template <typename T>
struct Reference {
  void forward(const GatherDims& d, const T* table, const int32_t* index, T* y) const {
    reference::gather<T>(d, table, index, y);
  }
  void backward(const GatherDims& d, const int32_t* index, const T* dy, T* dtable) const {
    reference::gather_backward<T>(d, index, dy, dtable);
  }
};
struct Cpu {
  void forward(const GatherDims& d, const float* table, const int32_t* index, float* y) const {
    cpu::gather(d, table, index, y, {team});
  }
  void backward(const GatherDims& d, const int32_t* index, const float* dy, float* dtable) const {
    cpu::gather_backward(d, index, dy, dtable, {team});
  }
  cpu::Team& team;
};

TEST(TableParts, GiveWhatTheWholeGives) {
  cpu::Team team(3);
  for (const Lookup& l : {Lookup{1, 2, 1, 2}, Lookup{37, 13, 5, 2}, Lookup{37, 13, 16, 3},
                          Lookup{64, 5, 33, 4}, Lookup{500, 700, 40, 7}}) {
    SCOPED_TRACE(std::to_string(l.rows) + " rows in " + std::to_string(l.parts));
    expect_parts_of_a_whole<double>(l, Reference<double>());
    expect_parts_of_a_whole<float>(l, Reference<float>());
    expect_parts_of_a_whole<float>(l, Cpu{team});
  }
}

}  // namespace
}  // namespace trainyard::kernels
