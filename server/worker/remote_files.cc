#include "server/worker/remote_files.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "src/base/files.h"
#include "src/base/folder_files.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/base/wait_for_stop.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 64 << 10;  // the most that a broken connection loses per file
constexpr std::chrono::milliseconds kPause{500};
constexpr const char* kLinkLost = "CONNECTION_LOST";

Error stopped_error() {
  return make_error(ErrorCode::kCancelled, "STOPPED", "stopped while files were being transferred");
}

/// Returns whether a retry may help. SERVER_BUSY is such an error, because more workers may request
/// data at the same time than the daemon queues.
bool may_pass(const Error& error) {
  return error.reason == kLinkLost || error.reason == "PUSH_BUSY" || error.reason == "SERVER_BUSY";
}

/// Cancels a call when a stop is requested.
class CallStop {
 public:
  CallStop(const std::stop_token& stop, grpc::ClientContext& context)
      : callback_(stop, [&context] { context.TryCancel(); }) {}

 private:
  std::stop_callback<std::function<void()>> callback_;
};

/// Returns whether `name` is a path that stays below the folder. Names come from the daemon, but
/// are checked nevertheless.
bool is_plain_path(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
         *path.begin() != ".." && path.has_filename();
}

}  // namespace

Error error_of(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  Error e = make_error(ErrorCode::kUnavailable, kLinkLost,
                       "the daemon cannot be reached: " + status.error_message());
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0 ||
      !details.details(0).UnpackTo(&info)) {
    // The daemon's errors have details. An error without details comes from the connection or from
    // another server.
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      e = make_error(
          ErrorCode::kFailedPrecondition, "VERSION_SKEW",
          "the daemon does not know this call: its version is older than this worker's, " +
              std::string(TRAINYARD_VERSION));
    }
    return e;
  }
  e.code = static_cast<ErrorCode>(status.error_code());
  e.reason = info.reason();
  e.message = status.error_message();
  e.metadata.insert(info.metadata().begin(), info.metadata().end());
  return e;
}

Result<std::vector<PushedFile>> open_folder(const fs::path& folder, bool digests) {
  std::vector<PushedFile> files;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, list_folder_files(folder, "the folder"));
  for (const std::string& name : names) {
    PushedFile& file = files.emplace_back();
    file.name = name;
    file.file.reset(::open((folder / name).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st {};
    if (!file.file || ::fstat(file.file.get(), &st) != 0) {
      return file_error("cannot open", folder / name, errno);
    }
    file.bytes = st.st_size;
    if (!digests) continue;
    ASSIGN_OR_RETURN(file.sha256, sha256_file(folder / name));
  }
  return files;
}

Status RemoteFiles::wait_after(const Error& error, Clock::time_point last_contact,
                               const std::stop_token& stop) const {
  if (stop.stop_requested()) return stopped_error();
  if (!may_pass(error) || Clock::now() - last_contact > patience_) return error;
  wait_for_stop(stop, kPause);
  return stop.stop_requested() ? Status(stopped_error()) : Status();
}

Result<v1::ListFilesResponse> RemoteFiles::list(v1::FileSet set,
                                                const std::stop_token& stop) const {
  const Clock::time_point begin = Clock::now();
  v1::ListFilesRequest request;
  request.set_task(task_);
  request.set_nonce(nonce_);
  request.set_set(set);
  for (;;) {
    // The call has no deadline, because computing the digests of a large dataset takes long.
    grpc::ClientContext context;
    const CallStop call_stop(stop, context);
    v1::ListFilesResponse response;
    const grpc::Status status = stub_.ListFiles(&context, request, &response);
    if (status.ok()) return response;
    if (Status s = wait_after(error_of(status), begin, stop); !s.ok()) return std::move(s).error();
  }
}

Status RemoteFiles::pull_once(const v1::PullFileRequest& request, int to, bool& moved,
                              const std::stop_token& stop) const {
  grpc::ClientContext context;
  const CallStop call_stop(stop, context);
  const auto stream = stub_.PullFile(&context, request);
  v1::PullFileResponse piece;
  Status written;
  while (written.ok() && stream->Read(&piece)) {
    moved = true;
    std::string_view left = piece.data();
    while (!left.empty()) {
      const ssize_t n = ::write(to, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        written = file_error("cannot write", request.name(), n == 0 ? ENOSPC : errno);
        context.TryCancel();
        break;
      }
      left.remove_prefix(static_cast<size_t>(n));
    }
  }
  const grpc::Status status = stream->Finish();
  if (!written.ok()) return written;
  return status.ok() ? Status() : Status(error_of(status));
}

Status RemoteFiles::pull(v1::FileSet set, int64_t step, const v1::RemoteFile& file,
                         const fs::path& folder, const std::stop_token& stop) const {
  if (!is_plain_path(file.name())) {
    return make_error(ErrorCode::kDataLoss, "FILE_NAME_INVALID",
                      "the daemon names a file " + quoted_value(file.name()) +
                          ", expected a path below its folder");
  }
  const fs::path path = folder / file.name();
  if (Status s = local_files().create_directories(path.parent_path()); !s.ok()) return s;
  v1::PullFileRequest request;
  request.set_task(task_);
  request.set_nonce(nonce_);
  request.set_set(set);
  request.set_step(step);
  request.set_name(file.name());
  Clock::time_point last_contact = Clock::now();
  for (int tries = 0; tries < 2;) {
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
    struct stat st {};
    if (!out || ::fstat(out.get(), &st) != 0) return file_error("cannot open", path, errno);
    if (st.st_size > file.size_bytes() && ::ftruncate(out.get(), 0) != 0) {
      return file_error("cannot truncate", path, errno);
    }
    request.set_offset(st.st_size > file.size_bytes() ? 0 : st.st_size);
    bool moved = false;
    Status s = pull_once(request, out.get(), moved, stop);
    if (moved) last_contact = Clock::now();
    if (!s.ok()) {
      if (Status w = wait_after(s.error(), last_contact, stop); !w.ok()) return w;
      continue;
    }
    if (::fdatasync(out.get()) != 0 || ::fstat(out.get(), &st) != 0) {
      return file_error("cannot sync", path, errno);
    }
    ASSIGN_OR_RETURN(const std::string sha256, sha256_file(path));
    if (st.st_size == file.size_bytes() && (file.sha256().empty() || sha256 == file.sha256())) {
      return {};
    }
    if (::ftruncate(out.get(), 0) != 0) return file_error("cannot truncate", path, errno);
    ++tries;
  }
  return make_error(ErrorCode::kDataLoss, "CONTENT_HASH_MISMATCH",
                    quoted_value(file.name()) + " arrived with a wrong digest, twice");
}

Status RemoteFiles::push_once(const v1::PushFilesRequest& start,
                              const std::vector<PushedFile>& files, bool& moved,
                              const std::stop_token& stop) const {
  grpc::ClientContext context;
  const CallStop call_stop(stop, context);
  v1::PushFilesResponse response;
  const auto stream = stub_.PushFiles(&context, &response);
  bool open = stream->Write(start);
  int64_t skip = start.start().offset();
  Status read;
  v1::PushFilesRequest piece;
  for (const PushedFile& file : files) {
    int64_t at = std::min(skip, file.bytes);
    skip -= at;
    while (open && read.ok() && at < file.bytes) {
      std::string& data = *piece.mutable_data();
      data.resize(std::min(kPieceBytes, static_cast<size_t>(file.bytes - at)));
      const ssize_t n = ::pread(file.file.get(), data.data(), data.size(), at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        read = file_error("cannot read", file.name, n == 0 ? EIO : errno);
        context.TryCancel();
        break;
      }
      data.resize(static_cast<size_t>(n));
      at += n;
      open = stream->Write(piece);
      moved = moved || open;
    }
  }
  if (read.ok()) stream->WritesDone();
  const grpc::Status status = stream->Finish();
  if (!read.ok()) return read;
  return status.ok() ? Status() : Status(error_of(status));
}

Status RemoteFiles::push(v1::FileSet set, int64_t step, const std::vector<PushedFile>& files,
                         const std::stop_token& stop) const {
  v1::PushFilesRequest request;
  v1::PushFilesRequest::Start& start = *request.mutable_start();
  start.set_task(task_);
  start.set_nonce(nonce_);
  start.set_set(set);
  start.set_step(step);
  int64_t total = 0;
  for (const PushedFile& file : files) {
    v1::RemoteFile& declared = *start.add_files();
    declared.set_name(file.name);
    declared.set_size_bytes(file.bytes);
    declared.set_sha256(file.sha256);
    total += file.bytes;
  }
  Clock::time_point last_contact = Clock::now();
  for (int restarted = 0;;) {
    bool moved = false;
    Status s = push_once(request, files, moved, stop);
    if (s.ok()) return {};
    const Error& error = s.error();
    if (error.reason == "PUSH_OFFSET_MISMATCH") {
      const auto reported = error.metadata.find("offset");
      int64_t offset = -1;
      if (reported != error.metadata.end()) {
        const std::string& text = reported->second;
        (void)std::from_chars(text.data(), text.data() + text.size(), offset);
      }
      if (offset < 0 || offset > total || offset == start.offset()) return s;
      start.set_offset(offset);
      continue;
    }
    if (error.reason == "CONTENT_HASH_MISMATCH" && restarted++ == 0) {
      start.set_offset(0);
      continue;
    }
    if (moved && error.reason == kLinkLost) last_contact = Clock::now();
    if (Status w = wait_after(error, last_contact, stop); !w.ok()) return w;
  }
}

}  // namespace trainyard
