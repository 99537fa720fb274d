#include "src/runtime/host/thread_communicator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/shard.h"
#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard {

std::vector<std::unique_ptr<ThreadCommunicator>> ThreadCommunicator::make(size_t ranks) {
  const auto group = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<ThreadCommunicator>> all;
  for (size_t r = 0; r < ranks; ++r) all.emplace_back(new ThreadCommunicator(group, r));
  return all;
}

void ThreadCommunicator::run(Exchange exchange, std::span<const Part> parts) {
  ++reached_;
  group_->parts[rank_] = parts;  // read by other ranks between the two barriers only
  group_->barrier.wait();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::span<const Part>& other : group_->parts) {
      TRAINYARD_CHECK(other.size() == parts.size() && other[i].count == parts[i].count &&
                          other[i].dtype == parts[i].dtype && other[i].is_half == parts[i].is_half,
                      "the ranks exchange different tensors");
    }
    if (exchange == Exchange::kGatherRows) {
      gather_rows(i);
    } else if (exchange == Exchange::kAllGather) {
      gather(i);
    } else {
      with_float_type(parts[i].dtype, [&]<typename T>(T) { take_part<T>(exchange, i); });
    }
  }
  group_->barrier.wait();
  ++ended_;
}

template <typename T>
void ThreadCommunicator::take_part(Exchange exchange, size_t index) const {
  const auto ranks = static_cast<int64_t>(group_->parts.size());
  const auto me = static_cast<int64_t>(rank_);
  const Part& part = group_->parts[rank_][index];
  switch (exchange) {
    case Exchange::kAllReduce:
      reduce<T>(index, part.count * me / ranks, part.count * (me + 1) / ranks,
                [&](int64_t i, T mean) {
                  for (size_t r = 0; r < group_->parts.size(); ++r) data_of<T>(r, index)[i] = mean;
                });
      break;
    case Exchange::kReduceScatter: {
      const kernels::ShardRange mine = kernels::shard_range(part.count, me, ranks);
      T* const shard = static_cast<T*>(part.shard);
      reduce<T>(index, mine.first, mine.first + mine.count,
                [&](int64_t i, T mean) { shard[i - mine.first] = mean; });
      std::fill(shard + mine.count, shard + kernels::shard_elements(part.count, ranks), T(0));
      break;
    }
    case Exchange::kAllGather:
    case Exchange::kGatherRows:
      break;  // copied without regard to their type, in run()
    case Exchange::kScatterRows:
      scatter_rows<T>(index);
      break;
  }
}

template <typename T, typename F>
void ThreadCommunicator::reduce(size_t index, int64_t first, int64_t end, const F& take) const {
  const size_t ranks = group_->parts.size();
  std::array<const T*, kRanksMax> data{};
  for (size_t r = 0; r < ranks; ++r) data.at(r) = data_of<T>(r, index) + first;
  mean_in_rank_order<T>(data, ranks, end - first,
                        [&](int64_t i, T mean) { take(first + i, mean); });
}

void ThreadCommunicator::gather(size_t index) const {
  const auto ranks = static_cast<int64_t>(group_->parts.size());
  const Part& part = group_->parts[rank_][index];
  for (size_t r = 0; r < group_->parts.size(); ++r) {
    if (r == rank_) continue;
    const kernels::ShardRange shard =
        kernels::shard_range(part.count, static_cast<int64_t>(r), ranks);
    if (shard.count == 0) continue;
    const int64_t at = shard.first * part.element_bytes();
    std::memcpy(data_of<std::byte>(rank_, index) + at, data_of<std::byte>(r, index) + at,
                static_cast<size_t>(shard.count * part.element_bytes()));
  }
}

void ThreadCommunicator::gather_rows(size_t index) const {
  const Part& part = group_->parts[rank_][index];
  const auto bytes = static_cast<size_t>(part.count) * size_of(part.dtype);
  for (size_t r = 0; r < group_->parts.size(); ++r) {
    std::memcpy(static_cast<std::byte*>(part.rows) + r * bytes, group_->parts[r][index].data,
                bytes);
  }
  scale_rows(part, static_cast<int64_t>(group_->parts.size()));
}

template <typename T>
void ThreadCommunicator::scatter_rows(size_t index) const {
  const size_t ranks = group_->parts.size();
  const Part& part = group_->parts[rank_][index];
  const int64_t count = part.count / static_cast<int64_t>(ranks);
  const int64_t first = count * static_cast<int64_t>(rank_);
  std::array<const T*, kRanksMax> data{};
  for (size_t r = 0; r < ranks; ++r) data.at(r) = data_of<T>(r, index) + first;
  auto* const rows = static_cast<T*>(part.rows);
  for (int64_t i = 0; i < count; ++i) {
    T sum = 0;
    for (size_t r = 0; r < ranks; ++r) sum += data[r][i];
    rows[i] = sum * static_cast<T>(part.factor);
  }
}

}  // namespace trainyard
