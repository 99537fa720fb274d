// server/files/worker_files.h: reads and stores the files of workers on other hosts. A worker may
// access only the files that its task's owner grants (FileGrant), by names that cannot lead
// elsewhere.
//
// Pushed files are collected in a temporary folder next to their final one, so that no reader sees
// an incomplete folder. The folder is moved when it is complete, checked against its digests and
// durable, and if its task is still running. A temporary folder that a broken stream leaves is
// continued by the next stream, or deleted with the job's other leftovers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "server/files/disk_watch.h"
#include "server/processes/supervisor.h"
#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe. The calls read and write files, so gRPC's threads must not make them.
class WorkerFiles {
 public:
  /// The arguments must outlive this object.
  WorkerFiles(Supervisor& supervisor, Files& files, DiskWatch& disk)
      : supervisor_(supervisor), files_(files), disk_(disk) {}

  /// Performs the ListFiles call of worker_service.proto. RESOURCE_EXHAUSTED/TOO_MANY_FILES above
  /// kFilesMax.
  Result<v1::ListFilesResponse> list(const v1::ListFilesRequest& request);
  static constexpr size_t kFilesMax = 10'000;

  /// Opens a file and seeks to the request's offset. NOT_FOUND/FILE_NOT_FOUND;
  /// OUT_OF_RANGE/OFFSET_INVALID for an offset beyond its end.
  Result<UniqueFd> open(const v1::PullFileRequest& request);

  /// A folder that is being pushed. Not thread-safe.
  class Push {
   public:
    ~Push();
    Push(const Push&) = delete;
    /// Writes the next bytes. File system errors; INVALID_ARGUMENT/PUSH_TOO_LARGE; ATTEMPT_FENCED.
    Status append(std::string_view bytes);
    /// Moves the folder to its final path. FAILED_PRECONDITION/PUSH_INCOMPLETE keeps the temporary
    /// folder, DATA_LOSS/CONTENT_HASH_MISMATCH deletes it.
    Status finish();

   private:
    friend class WorkerFiles;
    Push(WorkerFiles& owner, FileGrant grant, v1::PushFilesRequest::Start start);
    Status open_next();
    Status close_file();
    Status check() const;

    WorkerFiles& owner_;
    const FileGrant grant_;
    const v1::PushFilesRequest::Start start_;
    const std::filesystem::path temporary_;
    bool entered_ = false;  // entered into owner_.pushes_
    int index_ = 0;         // index of the file whose bytes come next
    int64_t at_ = 0;        // offset in that file
    UniqueFd file_;
  };
  /// Begins or continues a push. FAILED_PRECONDITION/PUSH_OFFSET_MISMATCH,
  /// RESOURCE_EXHAUSTED/DISK_LOW, UNAVAILABLE/PUSH_BUSY, INVALID_ARGUMENT for a folder that is
  /// neither a checkpoint nor a model, or is larger than the grant.
  Result<std::unique_ptr<Push>> begin_push(const v1::PushFilesRequest::Start& start);

 private:
  Status list_dataset(const FileGrant& grant, v1::ListFilesResponse& response);
  static Status list_checkpoint(const FileGrant& grant, v1::ListFilesResponse& response);
  static Result<std::filesystem::path> find(const FileGrant& grant,
                                            const v1::PullFileRequest& request);
  /// Returns the file's digest. Skips the read if size and modification time are those of the last
  /// read.
  Result<std::string> digest_of(const std::filesystem::path& path);

  Supervisor& supervisor_;
  Files& files_;
  DiskWatch& disk_;
  struct Digest {
    int64_t bytes = 0;
    int64_t changed_ns = 0;
    std::string sha256;
  };
  static constexpr size_t kDigestsMax = 100'000;
  Mutex mu_;
  std::map<std::filesystem::path, Digest> digests_ TRAINYARD_GUARDED_BY(mu_);
  // Running pushes, by temporary folder.
  std::set<std::filesystem::path> pushes_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace trainyard::server
