// server/worker/uplink.h: what training leaves on another host, on its way to the daemon.
//
// A checkpoint counts when the daemon has it, so its report is sent then and not before. Pushes
// have a thread of their own: training waits for none of them. Where it makes checkpoints faster
// than the link carries them, the newest one waits and those before it are passed over, unless the
// recipe asks for certain ones to be kept.
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
  /// `keeps_some`: the recipe wants more than the newest checkpoints.
  Uplink(const RemoteFiles& remote, ReportStream& stream, bool keeps_some)
      : remote_(remote), stream_(stream), keeps_some_(keeps_some) {
    thread_ = std::jthread([this] { run(); });
  }
  ~Uplink();
  Uplink(const Uplink&) = delete;

  /// The checkpoint in `folder` is complete; `report` says so. Does not wait: opens the files,
  /// which may be removed then.
  void checkpoint_saved(int64_t step, const std::filesystem::path& folder, v1::WorkerReport report);
  /// Returns when the daemon has the model in `folder`, and the checkpoints before it.
  /// STORAGE_FULL where its disk has no room, STORAGE_ERROR where it does not take it.
  Status model_written(const std::filesystem::path& folder);
  /// Waits until no checkpoint is on its way.
  void drain();
  /// Nothing more is pushed: nobody takes it.
  void abandon();
  /// How long the last one took, from when it was complete until the daemon had it.
  std::chrono::milliseconds last_push() const { return std::chrono::milliseconds(last_push_ms_); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Checkpoint {
    int64_t step = 0;
    std::vector<PushedFile> files;
    v1::WorkerReport report;
    Clock::time_point begin;
  };
  // So many are open at once, of three files each.
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
  std::atomic<bool> told_full_{false};

  Mutex mu_;
  CondVar changed_;
  std::deque<Checkpoint> waiting_ TRAINYARD_GUARDED_BY(mu_);
  bool pushing_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool closing_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::jthread thread_;
};

}  // namespace trainyard
