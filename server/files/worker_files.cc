#include "server/files/worker_files.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/convert/spec.h"
#include "server/config/log.h"
#include "src/artifact/model_artifact.h"
#include "src/base/check.h"
#include "src/base/folder_files.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/retention.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kNamesOfCheckpoint = {
    "weights.safetensors", "optimizer.safetensors", "state.json"};
constexpr std::array<std::string_view, 4> kNamesOfModel = {
    "model.safetensors", "model.json", "adapter_model.safetensors", "adapter_config.json"};
constexpr int kPushedFilesMax = 8;

Error no_such_file(const std::string& name) {
  return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                    "the task has no file " + quoted_value(name) + " of this kind");
}

/// If a step has several checkpoints, returns the complete one, as a resume does.
Result<CheckpointFolder> find_whole_checkpoint(const fs::path& folder, int64_t step) {
  for (const CheckpointFolder& c : list_checkpoints(folder)) {
    if (c.step == step && find_state(c)) return c;
  }
  return no_such_file("step " + std::to_string(step));
}

bool is_checkpoint_push(const v1::PushFilesRequest::Start& start) {
  return start.set() == v1::FILE_SET_CHECKPOINT;
}

Status check_files(const v1::PushFilesRequest::Start& start, int64_t bytes_max) {
  if (!is_checkpoint_push(start) && start.set() != v1::FILE_SET_MODEL) {
    return field_error("FIELD_INVALID", "start.set",
                       "expected FILE_SET_CHECKPOINT or FILE_SET_MODEL");
  }
  if (start.step() < 0) return field_error("FIELD_OUT_OF_RANGE", "start.step", "is negative");
  if (start.files_size() == 0 || start.files_size() > kPushedFilesMax) {
    return field_error("FIELD_OUT_OF_RANGE", "start.files", "expected 1 to 8 files");
  }
  const std::span<const std::string_view> names =
      is_checkpoint_push(start) ? std::span<const std::string_view>(kNamesOfCheckpoint)
                                : std::span<const std::string_view>(kNamesOfModel);
  std::set<std::string> seen;
  int64_t bytes = 0;
  for (const v1::RemoteFile& file : start.files()) {
    if (std::ranges::find(names, file.name()) == names.end() || !seen.insert(file.name()).second) {
      return field_error(
          "FIELD_INVALID", "start.files.name",
          quoted_value(file.name()) + " is not a file of such a folder, or is listed twice");
    }
    if (file.size_bytes() < 0 || file.size_bytes() > bytes_max - bytes) {
      return field_error(
          "FIELD_OUT_OF_RANGE", "start.files.size_bytes",
          "expected at most " + std::to_string(bytes_max) + " bytes for all files together");
    }
    bytes += file.size_bytes();
    if (!is_checkpoint_push(start) && !is_sha256_hex(file.sha256())) {
      return field_error("FIELD_INVALID", "start.files.sha256",
                         "expected 64 lower-case hexadecimal digits");
    }
  }
  const size_t needed = is_checkpoint_push(start) ? names.size() : 2;
  if (seen.size() < needed || (!is_checkpoint_push(start) && !seen.contains("model.safetensors"))) {
    return field_error("FIELD_REQUIRED", "start.files", "files of the folder are missing");
  }
  return {};
}

/// Returns the number of bytes of these files that the temporary folder contains; 0 if one of its
/// files is larger than declared.
int64_t received_bytes(const fs::path& temporary, const v1::PushFilesRequest::Start& start) {
  int64_t received = 0;
  for (const v1::RemoteFile& file : start.files()) {
    std::error_code ec;
    const auto size = static_cast<int64_t>(fs::file_size(temporary / file.name(), ec));
    if (ec) return received;
    if (size > file.size_bytes()) return 0;
    received += size;
    if (size < file.size_bytes()) return received;
  }
  return received;
}

int64_t bytes_of(const v1::PushFilesRequest::Start& start) {
  int64_t bytes = 0;
  for (const v1::RemoteFile& file : start.files()) bytes += file.size_bytes();
  return bytes;
}

fs::path place_of_part(const FileGrant& grant, const v1::PushFilesRequest::Start& start) {
  if (is_checkpoint_push(start)) return temporary_checkpoint(grant.checkpoints, start.step());
  fs::path temporary = grant.model;
  temporary += ".tmp";
  return temporary;
}

}  // namespace

// ---- Reading -----------------------------------------------------------------------------------

Result<std::string> WorkerFiles::digest_of(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return file_error("cannot stat", path, errno);
  const int64_t changed_ns = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
  {
    const MutexLock lock(mu_);
    const auto known = digests_.find(path);
    if (known != digests_.end() && known->second.bytes == st.st_size &&
        known->second.changed_ns == changed_ns) {
      return known->second.sha256;
    }
  }
  ASSIGN_OR_RETURN(std::string sha256, sha256_file(path));
  const MutexLock lock(mu_);
  if (digests_.size() >= kDigestsMax) digests_.clear();
  digests_.insert_or_assign(path, Digest{st.st_size, changed_ns, sha256});
  return sha256;
}

Status WorkerFiles::list_dataset(const FileGrant& grant, v1::ListFilesResponse& response) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   list_folder_files(grant.dataset, "the dataset"));
  if (names.size() > kFilesMax) {
    return make_error(ErrorCode::kResourceExhausted, "TOO_MANY_FILES",
                      "the dataset has " + std::to_string(names.size()) + " files, at most " +
                          std::to_string(kFilesMax) + " can be sent to another host");
  }
  for (const std::string& name : names) {
    v1::RemoteFile& file = *response.add_files();
    std::error_code ec;
    file.set_name(name);
    file.set_size_bytes(static_cast<int64_t>(fs::file_size(grant.dataset / name, ec)));
    if (ec) return file_error("cannot stat", grant.dataset / name, ec.value());
    ASSIGN_OR_RETURN(*file.mutable_sha256(), digest_of(grant.dataset / name));
  }
  return {};
}

// Lists the checkpoint that load_newest_checkpoint() would load, so that a remote attempt resumes
// where a local one would.
Status WorkerFiles::list_checkpoint(const FileGrant& grant, v1::ListFilesResponse& response) {
  for (const CheckpointFolder& c : list_checkpoints(grant.checkpoints)) {
    if (Status s = verify_checkpoint(c); !s.ok()) {
      const Error& error = s.error();
      if (is_of_file_error(error.reason) && error.code != ErrorCode::kNotFound) return s;
      response.add_damaged(c.path.filename().string());
      continue;
    }
    response.set_step(c.step);
    for (const std::string_view name : kNamesOfCheckpoint) {
      std::error_code ec;
      v1::RemoteFile& file = *response.add_files();
      file.set_name(std::string(name));
      file.set_size_bytes(static_cast<int64_t>(fs::file_size(c.path / name, ec)));
      if (ec) return file_error("cannot stat", c.path / name, ec.value());
    }
    return {};
  }
  return {};
}

Result<v1::ListFilesResponse> WorkerFiles::list(const v1::ListFilesRequest& request) {
  ASSIGN_OR_RETURN(const FileGrant grant, supervisor_.grant(request.task(), request.nonce()));
  v1::ListFilesResponse response;
  Status s;
  switch (request.set()) {
    case v1::FILE_SET_DATASET:
      s = list_dataset(grant, response);
      break;
    case v1::FILE_SET_RESUME:
      s = list_checkpoint(grant, response);
      break;
    case v1::FILE_SET_INITIAL: {
      if (grant.initial_weights.empty()) break;
      std::error_code ec;
      v1::RemoteFile& file = *response.add_files();
      file.set_name("initial");
      file.set_size_bytes(static_cast<int64_t>(fs::file_size(grant.initial_weights, ec)));
      if (ec) return file_error("cannot stat", grant.initial_weights, ec.value());
      ASSIGN_OR_RETURN(*file.mutable_sha256(), digest_of(grant.initial_weights));
      break;
    }
    default:
      return field_error("FIELD_INVALID", "set",
                         "expected FILE_SET_DATASET, FILE_SET_RESUME or FILE_SET_INITIAL");
  }
  if (!s.ok()) return std::move(s).error();
  return response;
}

Result<fs::path> WorkerFiles::find(const FileGrant& grant, const v1::PullFileRequest& request) {
  switch (request.set()) {
    case v1::FILE_SET_DATASET: {
      // Check only this file: otherwise a dataset of ten thousand images would be listed for each
      // of them. A path that list() accepts never leads outside the folder.
      if (!is_listed_path(request.name())) return no_such_file(request.name());
      fs::path path = grant.dataset / request.name();
      std::error_code ec;
      if (fs::is_regular_file(path, ec)) return path;
      // A missing folder, as on a disk that is not mounted, says nothing about its files.
      if (!fs::is_directory(grant.dataset, ec)) {
        return file_error("cannot find", grant.dataset, ec ? ec.value() : ENOENT);
      }
      return no_such_file(request.name());
    }
    case v1::FILE_SET_RESUME: {
      if (std::ranges::find(kNamesOfCheckpoint, request.name()) == kNamesOfCheckpoint.end()) {
        return no_such_file(request.name());
      }
      ASSIGN_OR_RETURN(const CheckpointFolder found,
                       find_whole_checkpoint(grant.checkpoints, request.step()));
      return found.path / request.name();
    }
    case v1::FILE_SET_INITIAL:
      if (grant.initial_weights.empty() || request.name() != "initial") {
        return no_such_file(request.name());
      }
      return grant.initial_weights;
    default:
      return field_error("FIELD_INVALID", "set",
                         "expected FILE_SET_DATASET, FILE_SET_RESUME or FILE_SET_INITIAL");
  }
}

Result<UniqueFd> WorkerFiles::open(const v1::PullFileRequest& request) {
  ASSIGN_OR_RETURN(const FileGrant grant, supervisor_.grant(request.task(), request.nonce()));
  ASSIGN_OR_RETURN(const fs::path path, find(grant, request));
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0) return file_error("cannot open", path, errno);
  if (request.offset() < 0 || request.offset() > st.st_size ||
      ::lseek(file.get(), request.offset(), SEEK_SET) != request.offset()) {
    return make_error(ErrorCode::kOutOfRange, "OFFSET_INVALID",
                      "offset: " + std::to_string(request.offset()) + " is outside of the file's " +
                          std::to_string(st.st_size) + " bytes");
  }
  return file;
}

// ---- Pushing -----------------------------------------------------------------------------------

Result<std::unique_ptr<WorkerFiles::Push>> WorkerFiles::begin_push(
    const v1::PushFilesRequest::Start& start) {
  ASSIGN_OR_RETURN(FileGrant grant,
                   supervisor_.grant(start.task(), start.nonce(), FileUse::kWrite));
  if (Status s = check_files(start, grant.push_bytes_max); !s.ok()) return std::move(s).error();
  std::unique_ptr<Push> push(new Push(*this, std::move(grant), start));
  TRAINYARD_CHECK(push->temporary_.has_parent_path(),
                  "task " + start.task() + " may push files but has no folder for them");
  {
    const MutexLock lock(mu_);
    push->entered_ = pushes_.insert(push->temporary_).second;
  }
  if (!push->entered_) {
    return make_error(ErrorCode::kUnavailable, "PUSH_BUSY",
                      "an earlier stream is still writing these files; call again in a moment");
  }
  const int64_t received = received_bytes(push->temporary_, start);
  if (received == 0) {
    if (Status s = files_.remove_all(push->temporary_); !s.ok()) return std::move(s).error();
    if (Status s = files_.create_directories(push->temporary_); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (start.offset() != received) {
    Error e = make_error(ErrorCode::kFailedPrecondition, "PUSH_OFFSET_MISMATCH",
                         "offset: " + std::to_string(start.offset()) + ", expected " +
                             std::to_string(received) + ", the bytes that have arrived");
    e.metadata["offset"] = std::to_string(received);
    return e;
  }
  if (Status s = disk_.check(bytes_of(start) - received); !s.ok()) return std::move(s).error();
  for (int64_t left = received; push->index_ < start.files_size(); ++push->index_) {
    const int64_t bytes = start.files(push->index_).size_bytes();
    if (left < bytes || left == 0) {
      push->at_ = left;
      break;
    }
    left -= bytes;
  }
  return push;
}

WorkerFiles::Push::Push(WorkerFiles& owner, FileGrant grant, v1::PushFilesRequest::Start start)
    : owner_(owner),
      grant_(std::move(grant)),
      start_(std::move(start)),
      temporary_(place_of_part(grant_, start_)) {}

WorkerFiles::Push::~Push() {
  file_.reset();
  if (!entered_) return;
  const MutexLock lock(owner_.mu_);
  owner_.pushes_.erase(temporary_);
}

Status WorkerFiles::Push::open_next() {
  const fs::path path = temporary_ / start_.files(index_).name();
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file_ || ::lseek(file_.get(), at_, SEEK_SET) != at_) {
    return file_error("cannot open", path, errno);
  }
  return {};
}

Status WorkerFiles::Push::close_file() {
  if (::fdatasync(file_.get()) != 0) {
    return file_error("cannot sync", temporary_ / start_.files(index_).name(), errno);
  }
  file_.reset();
  ++index_;
  at_ = 0;
  return {};
}

Status WorkerFiles::Push::append(std::string_view bytes) {
  if (Status s = owner_.supervisor_.admit(start_.task(), start_.nonce()); !s.ok()) return s;
  for (;;) {
    if (index_ == start_.files_size()) {
      return bytes.empty() ? Status()
                           : Status(field_error("PUSH_TOO_LARGE", "data",
                                                "has more bytes than were declared for the files"));
    }
    if (!file_) {
      if (Status s = open_next(); !s.ok()) return s;
    }
    const int64_t left = start_.files(index_).size_bytes() - at_;
    TRAINYARD_CHECK(left >= 0, start_.files(index_).name() + " of task " + start_.task() + " has " +
                                   std::to_string(-left) + " bytes more than were declared");
    const std::string_view part = bytes.substr(0, static_cast<size_t>(left));
    size_t done = 0;
    while (done < part.size()) {
      const ssize_t n = ::write(file_.get(), part.data() + done, part.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        return file_error("cannot write", temporary_ / start_.files(index_).name(),
                          n == 0 ? ENOSPC : errno);
      }
      done += static_cast<size_t>(n);
    }
    at_ += std::ssize(part);
    bytes.remove_prefix(part.size());
    if (at_ < start_.files(index_).size_bytes()) return {};
    if (Status s = close_file(); !s.ok()) return s;
  }
}

Status WorkerFiles::Push::check() const {
  if (is_checkpoint_push(start_)) return verify_checkpoint({temporary_, start_.step(), false});
  for (const v1::RemoteFile& file : start_.files()) {
    ASSIGN_OR_RETURN(const std::string sha256, sha256_file(temporary_ / file.name()));
    if (sha256 != file.sha256()) {
      return make_error(ErrorCode::kDataLoss, "CONTENT_HASH_MISMATCH",
                        file.name() + " arrived with a wrong digest");
    }
  }
  return {};
}

Status WorkerFiles::Push::finish() {
  if (Status s = append({}); !s.ok()) return s;  // creates the remaining empty files
  if (index_ < start_.files_size()) {
    return make_error(ErrorCode::kFailedPrecondition, "PUSH_INCOMPLETE",
                      "the stream ended before all files had arrived");
  }
  if (Status s = check(); !s.ok()) {
    if (is_of_file_error(s.error().reason)) return s;  // says nothing about the received bytes
    (void)owner_.files_.remove_all(temporary_);
    return make_error(ErrorCode::kDataLoss, "CONTENT_HASH_MISMATCH",
                      "the received files differ from those that were sent: " + s.error().message);
  }
  if (Status s = owner_.files_.sync_directory(temporary_); !s.ok()) return s;
  if (Status s = owner_.supervisor_.admit(start_.task(), start_.nonce()); !s.ok()) return s;
  if (!is_checkpoint_push(start_)) {
    return install_model(owner_.files_, temporary_, grant_.model);
  }
  const CheckpointFolder arrived{temporary_, start_.step(), false};
  const std::optional<CheckpointState> state = find_state(arrived);
  if (Status s = install_checkpoint(owner_.files_, temporary_, grant_.checkpoints, start_.step());
      !s.ok()) {
    return s;
  }
  const Result<EngineSpec> spec = to_engine(grant_.spec);
  if (spec.ok() && state) {
    prune_checkpoints(owner_.files_, grant_.checkpoints, retention_after(spec->recipe, *state));
  }
  spdlog::info("event=checkpoint_pushed {} step={} bytes={}", kv("task", start_.task()),
               start_.step(), bytes_of(start_));
  return {};
}

}  // namespace trainyard::server
