// server/worker/uplink.h: pushes the checkpoints and the model of a remote worker to the daemon.
//
// A checkpoint counts only when the daemon has it, so its report is sent after it was pushed. A
// separate thread pushes, so that training never waits for it. If training writes checkpoints
// faster than the link transfers them, only the newest one waits and older ones are skipped, unless
// the recipe requires certain checkpoints to be kept.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "server/worker/remote_files.h"
#include "server/worker/report_stream.h"
#include "src/base/mutex.h"

namespace trainyard {

class Uplink {
 public:
  /// `keeps_some`: the recipe keeps more checkpoints than the newest ones.
  Uplink(const RemoteFiles& remote, ReportStream& stream, bool keeps_some)
      : remote_(remote), stream_(stream), keeps_some_(keeps_some) {
    thread_ = std::jthread([this] { run(); });
  }
  ~Uplink();
  Uplink(const Uplink&) = delete;

  /// Queues the complete checkpoint in `folder`; `report` is sent when the daemon has it. Does not
  /// wait: it opens the files, which may be deleted afterwards.
  void checkpoint_saved(int64_t step, const std::filesystem::path& folder, v1::WorkerReport report);
  /// Returns when the daemon has the model in `folder` and all earlier checkpoints. STORAGE_FULL if
  /// the daemon's disk has no room, STORAGE_ERROR if the daemon does not accept the model.
  Status model_written(const std::filesystem::path& folder);
  /// Waits until no checkpoint is queued or being pushed.
  void drain();
  /// Stops pushing, when no daemon can accept files any more.
  void abandon();
  /// Returns how long the last push took, from the completion of the checkpoint until the daemon
  /// had it.
  std::chrono::milliseconds last_push() const { return std::chrono::milliseconds(last_push_ms_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Checkpoint {
    int64_t step = 0;
    std::vector<PushedFile> files;
    v1::WorkerReport report;
    Clock::time_point begin;
  };
  // Limits the open files: each waiting checkpoint has three.
  static constexpr size_t kWaitingMax = 8;

  void run();
  void push(Checkpoint checkpoint);
  void report_failure(int64_t step, const Error& error);
  void warn(std::string text);

  const RemoteFiles& remote_;
  ReportStream& stream_;
  const bool keeps_some_;
  std::stop_source stop_;
  std::atomic<int64_t> last_push_ms_{0};
  std::atomic<bool> logged_full_{false};

  Mutex mu_;
  CondVar changed_;
  std::deque<Checkpoint> waiting_ TRAINYARD_GUARDED_BY(mu_);
  bool pushing_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool closing_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::jthread thread_;
};

}  // namespace trainyard
