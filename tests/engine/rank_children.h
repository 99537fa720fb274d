// tests/engine/rank_children.h: child processes that train one job together, for tests that kill
// processes (rank_process.h).
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/optim/sharding.h"

namespace trainyard::testing {

/// The arguments of the processes.
struct RankChildren {
  std::string program;  // its name in the folder of the test program
  std::filesystem::path dataset, work;
  int quiet_ms = 900'000;  // PeerOptions::silence_limit
  Shard shard = Shard::kOptimizer;
  int64_t count = 4;
  /// Returns an entry "NAME=VALUE" that is added to the environment of process `index`; empty:
  /// none.
  std::function<std::string(int64_t index)> environment = {};
};

class RankChild {
 public:
  RankChild(const RankChildren& all, int64_t index);
  ~RankChild();
  RankChild(const RankChild&) = delete;
  RankChild& operator=(const RankChild&) = delete;

  void write(const std::string& text);
  /// Returns the next line that begins with `begin`; "" at the end of the output.
  std::string line(const std::string& begin);
  void kill(int signal) const;
  /// Waits for the process to end. Returns its exit status, or minus the signal.
  int wait();

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  UniqueFd in_;
  std::unique_ptr<FILE, int (*)(FILE*)> out_{nullptr, std::fclose};
};

/// Starts the processes, which connect with each other.
std::vector<std::unique_ptr<RankChild>> start_rank_children(const RankChildren& all);

}  // namespace trainyard::testing
