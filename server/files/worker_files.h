// server/files/worker_files.h: the files that a worker on another host needs and leaves: only
// those that its task's owner grants (FileGrant), by names of which none can lead elsewhere.
//
// What is pushed is put together beside its place, so that no reader meets a part of it, and is
// moved there once it is whole, checked against its digests, durable, and its task still goes on.
// The part that a broken stream leaves is continued by the next one, or swept away with the job's
// other leftovers.
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

/// Thread-safe. Calls read and write files: not for gRPC's threads.
class WorkerFiles {
 public:
  /// All are borrowed.
  WorkerFiles(Supervisor& supervisor, Files& files, DiskWatch& disk)
      : supervisor_(supervisor), files_(files), disk_(disk) {}

  /// What the protocol says of ListFiles. RESOURCE_EXHAUSTED/TOO_MANY_FILES above kFilesMax.
  Result<v1::ListFilesResponse> list(const v1::ListFilesRequest& request);
  static constexpr size_t kFilesMax = 10'000;

  /// A file, at the request's offset. NOT_FOUND/FILE_NOT_FOUND; OUT_OF_RANGE/OFFSET_INVALID behind
  /// its end.
  Result<UniqueFd> open(const v1::PullFileRequest& request);

  /// One folder on its way. Not thread-safe.
  class Push {
   public:
    ~Push();
    Push(const Push&) = delete;
    /// The next bytes. Errors of the file system; INVALID_ARGUMENT/PUSH_TOO_LONG; ATTEMPT_FENCED.
    Status append(std::string_view bytes);
    /// Brings the folder to its place. FAILED_PRECONDITION/PUSH_INCOMPLETE keeps the part,
    /// DATA_LOSS/ CONTENT_HASH_MISMATCH drops it.
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
    bool entered_ = false;  // among owner_.pushes_
    int index_ = 0;         // of the file whose bytes come next
    int64_t at_ = 0;        // in that file
    UniqueFd file_;
  };
  /// FAILED_PRECONDITION/PUSH_OFFSET, RESOURCE_EXHAUSTED/DISK_LOW, UNAVAILABLE/PUSH_BUSY,
  /// INVALID_ARGUMENT for a folder that is not one of a checkpoint or of a model, or is larger than
  /// the grant.
  Result<std::unique_ptr<Push>> begin_push(const v1::PushFilesRequest::Start& start);

 private:
  Status list_dataset(const FileGrant& grant, v1::ListFilesResponse& response);
  static Status list_checkpoint(const FileGrant& grant, v1::ListFilesResponse& response);
  static Result<std::filesystem::path> find(const FileGrant& grant,
                                            const v1::PullFileRequest& request);
  /// Reads the file unless it has the size and the time of when that was done last.
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
  std::set<std::filesystem::path> pushes_ TRAINYARD_GUARDED_BY(mu_);  // under way
};

}  // namespace trainyard::server
