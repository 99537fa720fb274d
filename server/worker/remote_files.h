// server/worker/remote_files.h: lists, pulls and pushes the daemon's files for a worker on another
// host, with the calls of worker_service.proto.
//
// Transfers over a broken connection are retried until `patience` has passed since the last byte
// that arrived. Data that has arrived, on either side, is not sent again.
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

/// Returns the daemon's error with its reason. CONNECTION_LOST for an error of the connection;
/// VERSION_SKEW if the daemon does not know the call.
Error error_of(const grpc::Status& status);

/// A file of a folder that is pushed. It is open, so it may be deleted during the push.
struct PushedFile {
  std::string name;
  UniqueFd file;
  int64_t bytes = 0;
  std::string sha256;  // empty: another file of the folder has the digests
};
/// Opens the files of a folder and, with `digests`, computes their SHA-256. File system errors.
Result<std::vector<PushedFile>> open_folder(const std::filesystem::path& folder, bool digests);

/// Thread-safe.
class RemoteFiles {
 public:
  RemoteFiles(v1::WorkerService::Stub& stub, std::string task, std::string nonce,
              std::chrono::milliseconds patience)
      : stub_(stub), task_(std::move(task)), nonce_(std::move(nonce)), patience_(patience) {}

  // Errors of all calls: CANCELLED/STOPPED once `stop` is requested, UNAVAILABLE/CONNECTION_LOST
  // when `patience` is over, the daemon's errors, and file system errors.

  Result<v1::ListFilesResponse> list(v1::FileSet set, const std::stop_token& stop) const;
  /// Pulls one of the listed files into `folder`, makes it durable and checks its size and digest.
  /// An existing file is continued. DATA_LOSS/CONTENT_HASH_MISMATCH after two tries.
  Status pull(v1::FileSet set, int64_t step, const v1::RemoteFile& file,
              const std::filesystem::path& folder, const std::stop_token& stop) const;
  /// Returns when the daemon has stored all files durably.
  Status push(v1::FileSet set, int64_t step, const std::vector<PushedFile>& files,
              const std::stop_token& stop) const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Pauses after a temporary error; returns any other error.
  Status wait_after(const Error& error, Clock::time_point last_contact,
                    const std::stop_token& stop) const;
  /// Appends the received bytes to the file `to`. Sets `moved` if any bytes arrived.
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
