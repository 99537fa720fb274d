// server/worker/remote_files.h: the daemon's files, for a worker on another host: lists, pulls and
// pushes by the calls of worker_service.proto.
//
// A link that is cut is waited for, up to `patience` after the last byte that went over it; what
// has arrived, on either side, is not sent again.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {

/// What the daemon refused, with its reason; of an error of the connection LINK_LOST.
Error error_of(const grpc::Status& status);

/// Part of a folder that is pushed. Open, so that it can be removed meanwhile.
struct PushedFile {
  std::string name;
  UniqueFd file;
  int64_t bytes = 0;
  std::string sha256;  // empty: the folder's own state has it
};
/// The files of a folder. Errors of the file system.
Result<std::vector<PushedFile>> open_folder(const std::filesystem::path& folder, bool digests);

/// Thread-safe.
class RemoteFiles {
 public:
  RemoteFiles(v1::WorkerService::Stub& stub, std::string task, std::string nonce,
              std::chrono::milliseconds patience)
      : stub_(stub), task_(std::move(task)), nonce_(std::move(nonce)), patience_(patience) {}

  // CANCELLED/STOPPED once `stop` is requested, UNAVAILABLE/LINK_LOST when patience is over; else
  // the daemon's refusals and errors of the file system.

  Result<v1::ListFilesResponse> list(v1::FileSet set, const std::stop_token& stop) const;
  /// Brings one of `listed` files into `folder`, durably, and checks its size and digest: what is
  /// there already is the beginning of it. DATA_LOSS/CONTENT_HASH_MISMATCH after two tries.
  Status pull(v1::FileSet set, int64_t step, const v1::RemoteFile& file,
              const std::filesystem::path& folder, const std::stop_token& stop) const;
  /// Returns when the daemon has all of it, durably.
  Status push(v1::FileSet set, int64_t step, const std::vector<PushedFile>& files,
              const std::stop_token& stop) const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Pauses after an error that may pass, else returns it.
  Status wait_after(const Error& error, Clock::time_point last_contact,
                    const std::stop_token& stop) const;
  /// Appends to `to` what comes from its end on; true if something did.
  Status pull_once(const v1::PullFileRequest& request, int to, bool& moved,
                   const std::stop_token& stop) const;
  Status push_once(const v1::PushFilesRequest& start, const std::vector<PushedFile>& files,
                   bool& moved, const std::stop_token& stop) const;

  v1::WorkerService::Stub& stub_;
  const std::string task_;
  const std::string nonce_;
  const std::chrono::milliseconds patience_;
};

}  // namespace trainyard
