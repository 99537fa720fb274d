#include "src/runtime/host/peer_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/shard.h"
#include "src/base/check.h"
#include "src/runtime/common/kernel_table.h"

namespace trainyard {

class PeerCommunicator::Group {
 public:
  Group(size_t ranks, std::shared_ptr<Peers> peers)
      : barrier(ranks), parts(ranks), peers_(std::move(peers)) {
    TRAINYARD_CHECK(std::ssize(parts) == peers_->ranks_each(),
                    std::to_string(ranks) + " ranks in a process, expected " +
                        std::to_string(peers_->ranks_each()));
    out_.resize(static_cast<size_t>(peers_->count()));
    in_.resize(static_cast<size_t>(peers_->count()));
  }

  Barrier barrier;
  std::vector<std::span<const Part>> parts;  // of the current exchange, by local rank

  /// Allocates memory for data that such an exchange receives before it is summed.
  void plan(Exchange exchange, std::span<const Part> such) {
    const MutexLock lock(planning_);
    TRAINYARD_CHECK(exchange != Exchange::kScatterRows,
                    "rows are scattered only by the ranks of one process");
    if (exchange == Exchange::kAllGather || exchange == Exchange::kGatherRows) return;
    for_rounds(exchange, such,
               [&] { staging_.resize(std::max(staging_.size(), staged_bytes(such))); });
  }

  /// Performs the whole exchange, while this process's other ranks wait.
  void lead(Exchange exchange) {
    const std::span<const Part> mine = parts.front();
    if (exchange == Exchange::kGatherRows) return gather_rows();
    for_rounds(exchange, mine, [&] {
      if (exchange != Exchange::kAllGather) {
        bring_to_owners();
        for (const Piece& p : round_) {
          if (is_here(p.owner)) {
            with_float_type(mine[p.part].dtype, [&]<typename T>(T) { sum<T>(exchange, p); });
          }
        }
      }
      if (exchange != Exchange::kReduceScatter) bring_to_all(exchange);
    });
    if (exchange == Exchange::kReduceScatter) fill_shards();
  }

  Peers& peers() const { return *peers_; }
  void abort() noexcept {
    barrier.abort();
    peers_->abort();
  }

 private:
  /// A range of a tensor's elements that one rank owns.
  struct Piece {
    size_t part = 0;
    int64_t first = 0, count = 0;
    int64_t owner = 0;     // the rank that owns the range
    int64_t in_shard = 0;  // for scattered tensors: its offset in the owner's shard
    // offset in staging_ at which the copies received from the ranks of other processes lie in a
    // row
    size_t staged = 0;
  };

  int64_t process_of(int64_t rank) const { return rank / peers_->ranks_each(); }
  bool is_here(int64_t rank) const { return process_of(rank) == peers_->index(); }
  size_t local(int64_t rank) const { return static_cast<size_t>(rank - peers_->first_rank()); }

  /// Calls work() repeatedly, each time with the next pieces in round_, until all parts are
  /// exchanged.
  template <typename F>
  void for_rounds(Exchange exchange, std::span<const Part> all, const F& work) {
    const int64_t ranks = peers_->ranks();
    int64_t bytes = 0;
    round_.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t size = all[i].element_bytes();
      const bool scattered = exchange != Exchange::kAllReduce;
      const int64_t end = scattered ? kernels::shard_elements(all[i].count, ranks) : all[i].count;
      const int64_t most = std::max<int64_t>(1, kRoundBytes / size / (scattered ? ranks : 1));
      for (int64_t first = 0; first < end; first += most) {
        const int64_t count = std::min(most, end - first);
        if (scattered) {
          add_shards(i, all[i].count, first, count);
        } else {
          add_shares(i, first, count);
        }
        bytes += count * size * (scattered ? ranks : 1);
        if (bytes < kRoundBytes) continue;
        work();
        round_.clear();
        bytes = 0;
      }
    }
    if (!round_.empty()) work();
    round_.clear();
  }

  void add_shares(size_t part, int64_t first, int64_t count) {
    const int64_t ranks = peers_->ranks();
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t begin = count * r / ranks, end = count * (r + 1) / ranks;
      if (end > begin) round_.push_back({part, first + begin, end - begin, r});
    }
  }

  void add_shards(size_t part, int64_t elements, int64_t first, int64_t count) {
    const int64_t ranks = peers_->ranks();
    for (int64_t r = 0; r < ranks; ++r) {
      const kernels::ShardRange shard = kernels::shard_range(elements, r, ranks);
      const int64_t left = std::min(count, shard.count - first);
      if (left > 0) round_.push_back({part, shard.first + first, left, r, first});
    }
  }

  size_t bytes_of(const Piece& p, std::span<const Part> all) const {
    return static_cast<size_t>(p.count * all[p.part].element_bytes());
  }

  /// Assigns each of this process's pieces in the round an offset in staging_; returns the bytes
  /// needed.
  size_t staged_bytes(std::span<const Part> all) {
    const auto others = static_cast<size_t>(peers_->ranks() - peers_->ranks_each());
    size_t bytes = 0;
    for (Piece& p : round_) {
      if (!is_here(p.owner)) continue;
      p.staged = bytes;
      // Offsets are multiples of 8 bytes, as F64 requires.
      bytes += (bytes_of(p, all) * others + sizeof(double) - 1) / sizeof(double) * sizeof(double);
    }
    return bytes;
  }

  /// Returns the address at which the copy of a piece from another process's rank is received.
  std::byte* staged(const Piece& p, int64_t rank) {
    const int64_t before = rank < peers_->first_rank() ? rank : rank - peers_->ranks_each();
    return staging_.data() + p.staged + static_cast<size_t>(before) * bytes_of(p, parts.front());
  }

  std::byte* data_of(size_t local_rank, const Piece& p) const {
    const Part& part = parts[local_rank][p.part];
    return static_cast<std::byte*>(part.data) + p.first * part.element_bytes();
  }

  void begin_exchange() {
    for (auto& spans : out_) spans.clear();
    for (auto& spans : in_) spans.clear();
  }

  void bring_to_owners() {
    begin_exchange();
    TRAINYARD_CHECK(staged_bytes(parts.front()) <= staging_.size(),
                    "an exchange that was not planned");
    for (const Piece& p : round_) {
      const size_t bytes = bytes_of(p, parts.front());
      if (!is_here(p.owner)) {
        auto& to = out_[static_cast<size_t>(process_of(p.owner))];
        for (size_t l = 0; l < parts.size(); ++l) to.emplace_back(data_of(l, p), bytes);
        continue;
      }
      for (int64_t r = 0; r < peers_->ranks(); ++r) {
        if (!is_here(r)) {
          in_[static_cast<size_t>(process_of(r))].emplace_back(staged(p, r), bytes);
        }
      }
    }
    peers_->exchange(out_, in_);
  }

  template <typename T>
  void sum(Exchange exchange, const Piece& p) {
    std::array<const T*, kRanksMax> data{};
    for (int64_t r = 0; r < peers_->ranks(); ++r) {
      data.at(static_cast<size_t>(r)) =
          reinterpret_cast<const T*>(is_here(r) ? data_of(local(r), p) : staged(p, r));
    }
    const auto ranks = static_cast<size_t>(peers_->ranks());
    if (exchange == Exchange::kReduceScatter) {
      T* const to = static_cast<T*>(parts[local(p.owner)][p.part].shard) + p.in_shard;
      mean_in_rank_order<T>(data, ranks, p.count, [&](int64_t i, T mean) { to[i] = mean; });
      return;
    }
    std::array<T*, kRanksMax> to{};
    for (size_t l = 0; l < parts.size(); ++l) to.at(l) = reinterpret_cast<T*>(data_of(l, p));
    mean_in_rank_order<T>(data, ranks, p.count, [&](int64_t i, T mean) {
      for (size_t l = 0; l < parts.size(); ++l) to[l][i] = mean;
    });
  }

  void bring_to_all(Exchange exchange) {
    begin_exchange();
    for (const Piece& p : round_) {
      const size_t bytes = bytes_of(p, parts.front());
      if (!is_here(p.owner)) {
        in_[static_cast<size_t>(process_of(p.owner))].emplace_back(data_of(0, p), bytes);
        continue;
      }
      for (int64_t q = 0; q < peers_->count(); ++q) {
        if (q != peers_->index()) {
          out_[static_cast<size_t>(q)].emplace_back(data_of(local(p.owner), p), bytes);
        }
      }
    }
    peers_->exchange(out_, in_);
    for (const Piece& p : round_) {
      // A mean is already in the memory of all local ranks; a shard only in its owner's.
      if (is_here(p.owner) && exchange == Exchange::kAllReduce) continue;
      const size_t from = is_here(p.owner) ? local(p.owner) : 0;
      for (size_t l = 0; l < parts.size(); ++l) {
        if (l != from) std::memcpy(data_of(l, p), data_of(from, p), bytes_of(p, parts.front()));
      }
    }
  }

  /// Gathers the rows in the memory of this process's first rank, and copies them to its other
  /// ranks.
  void gather_rows() {
    const auto each = static_cast<size_t>(peers_->ranks_each());
    const auto here = static_cast<size_t>(peers_->index());
    begin_exchange();
    for (size_t i = 0; i < parts.front().size(); ++i) {
      const Part& first = parts.front()[i];
      const auto bytes = static_cast<size_t>(first.count) * size_of(first.dtype);
      auto* const rows = static_cast<std::byte*>(first.rows);
      for (size_t l = 0; l < each; ++l) {
        std::memcpy(rows + (here * each + l) * bytes, parts[l][i].data, bytes);
      }
      for (size_t q = 0; q < out_.size(); ++q) {
        if (q == here) continue;
        out_[q].emplace_back(rows + here * each * bytes, each * bytes);
        in_[q].emplace_back(rows + q * each * bytes, each * bytes);
      }
    }
    peers_->exchange(out_, in_);
    for (size_t i = 0; i < parts.front().size(); ++i) {
      const Part& first = parts.front()[i];
      scale_rows(first, peers_->ranks());
      const auto bytes = static_cast<size_t>(first.count * peers_->ranks()) * size_of(first.dtype);
      for (size_t l = 1; l < each; ++l) std::memcpy(parts[l][i].rows, first.rows, bytes);
    }
  }

  /// Zeroes the padding of shards with fewer elements than their memory has room for.
  void fill_shards() {
    const int64_t ranks = peers_->ranks();
    for (size_t l = 0; l < parts.size(); ++l) {
      for (const Part& part : parts[l]) {
        const int64_t rank = peers_->first_rank() + static_cast<int64_t>(l);
        const int64_t count = kernels::shard_range(part.count, rank, ranks).count;
        const auto size = size_of(part.dtype);
        const auto rest =
            static_cast<size_t>(kernels::shard_elements(part.count, ranks) - count) * size;
        if (rest > 0) {
          std::memset(static_cast<std::byte*>(part.shard) + static_cast<size_t>(count) * size, 0,
                      rest);
        }
      }
    }
  }

  const std::shared_ptr<Peers> peers_;
  Mutex planning_;
  std::vector<Piece> round_;
  std::vector<std::byte> staging_;
  Peers::Outgoing out_;
  Peers::Incoming in_;
};

std::vector<std::unique_ptr<PeerCommunicator>> PeerCommunicator::make(
    size_t ranks, std::shared_ptr<Peers> peers) {
  const auto group = std::make_shared<Group>(ranks, std::move(peers));
  std::vector<std::unique_ptr<PeerCommunicator>> all;
  for (size_t r = 0; r < ranks; ++r) all.emplace_back(new PeerCommunicator(group, r));
  return all;
}

void PeerCommunicator::plan(Exchange exchange, std::span<const Part> parts) {
  group_->plan(exchange, parts);
}

void PeerCommunicator::run(Exchange exchange, std::span<const Part> parts) {
  ++reached_;
  group_->parts[rank_] = parts;  // read by the first rank between the two barriers only
  group_->barrier.wait();
  if (rank_ == 0) {
    try {
      group_->lead(exchange);
    } catch (const RankLost& e) {
      group_->barrier.abort(e);
      throw;
    } catch (...) {
      group_->barrier.abort();
      throw;
    }
  }
  group_->barrier.wait();
  ++ended_;
}

void PeerCommunicator::abort() noexcept { group_->abort(); }

Peers* PeerCommunicator::peers() const { return &group_->peers(); }

}  // namespace trainyard
