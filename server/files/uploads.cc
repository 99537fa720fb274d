#include "server/files/uploads.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "server/config/log.h"
#include "server/files/removals.h"
#include "src/base/check.h"
#include "src/base/crc32c.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

/// Returns an error that does not contain the server's path.
Error storage_error(const char* what, int err) {
  const bool full = err == ENOSPC || err == EDQUOT || err == EFBIG;
  return make_error(
      full ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable,
      full ? "STORAGE_FULL" : "STORAGE_ERROR",
      std::string("the upload cannot be stored: ") + what + ": " + std::strerror(err));
}

Error offset_mismatch(int64_t offset, int64_t committed) {
  Error e = make_error(ErrorCode::kOutOfRange, "UPLOAD_OFFSET_MISMATCH",
                       "offset " + std::to_string(offset) + " does not continue the upload at " +
                           std::to_string(committed));
  e.metadata["committed_size"] = std::to_string(committed);
  return e;
}

Error too_large(int64_t size, int64_t max) {
  Error e = make_error(ErrorCode::kResourceExhausted, "UPLOAD_TOO_LARGE",
                       "the file has at least " + std::to_string(size) + " bytes, and at most " +
                           std::to_string(max) + " are accepted");
  e.metadata["bytes_max"] = std::to_string(max);
  return e;
}

Error upload_busy() {
  return make_error(ErrorCode::kAborted, "UPLOAD_BUSY",
                    "another stream is uploading this file; call again when it has ended");
}

/// Adds bytes of the file to the hash. `buffer` is reused by later calls.
Status hash_part(int fd, std::vector<char>& buffer, Sha256& hash, int64_t offset, int64_t count) {
  const auto size = static_cast<size_t>(count);
  if (buffer.size() < size) buffer.resize(size);
  for (int64_t done = 0; done < count;) {
    const ssize_t n =
        ::pread(fd, buffer.data() + done, static_cast<size_t>(count - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return storage_error("read", n < 0 ? errno : EIO);
    done += n;
  }
  hash.update(std::string_view(buffer.data(), size));
  return {};
}

}  // namespace

UploadWriter::UploadWriter(Uploads& uploads, Upload row, UniqueFd file, bool threaded,
                           FollowingDigest::State hashed)
    : uploads_(uploads),
      row_(std::move(row)),
      file_(std::move(file)),
      offset_(row_.committed_size),
      committed_(row_.committed_size),
      flushing_(row_.committed_size),
      digest_([fd = file_.get(), buffer = std::make_shared<std::vector<char>>()](
                  Sha256& hash, int64_t offset,
                  int64_t count) { return hash_part(fd, *buffer, hash, offset, count); },
              threaded, std::move(hashed)) {
  digest_.follow_to(offset_);
}

UploadWriter::~UploadWriter() {
  const Uploads::Part part = Uploads::part_of(row_.key());
  if (!hashed_) uploads_.keep_hash(part, std::move(digest_).take_state());
  uploads_.release(part);
}

Status UploadWriter::append(int64_t offset, std::string_view data, uint32_t crc) {
  if (data.empty() || static_cast<int64_t>(data.size()) > Uploads::kChunkBytesMax) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "chunk.data",
        std::to_string(data.size()) + " bytes are out of range, expected 1..1048576");
  }
  if (offset != offset_) return offset_mismatch(offset, offset_);
  if (offset_ + static_cast<int64_t>(data.size()) > row_.size_bytes) {
    return too_large(offset_ + static_cast<int64_t>(data.size()), row_.size_bytes);
  }
  if (const uint32_t got = crc32c(data); got != crc) {
    Error e = make_error(
        ErrorCode::kDataLoss, "CHUNK_CHECKSUM_MISMATCH",
        "the chunk at offset " + std::to_string(offset) + " was damaged in transit; send it again");
    e.metadata = {{"expected", std::to_string(crc)},
                  {"got", std::to_string(got)},
                  {"committed_size", std::to_string(offset_)}};
    return e;
  }
  if (uploads_.disk_ != nullptr) {
    if (Status s = uploads_.disk_->check(); !s.ok()) return s;
  }
  std::string_view left = data;
  while (!left.empty()) {
    const ssize_t n = ::pwrite(file_.get(), left.data(), left.size(),
                               offset_ + static_cast<int64_t>(data.size() - left.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return storage_error("write", errno);
    left.remove_prefix(static_cast<size_t>(n));
  }
  offset_ += static_cast<int64_t>(data.size());
  digest_.follow_to(offset_);
  if (offset_ - flushing_ >= Uploads::kFlushBytes) {
    // Only start writing, so that commit(), which waits for the disk, has less to wait for.
    (void)::sync_file_range(file_.get(), flushing_, offset_ - flushing_, SYNC_FILE_RANGE_WRITE);
    flushing_ = offset_;
  }
  return offset_ - committed_ >= Uploads::kCommitBytes ? commit() : Status();
}

Status UploadWriter::commit() {
  if (offset_ == committed_) return {};
  if (::fdatasync(file_.get()) != 0) return storage_error("sync", errno);
  ASSIGN_OR_RETURN(row_, uploads_.store_.uploads().advance(row_.key(), offset_));
  TRAINYARD_CHECK(row_.committed_size >= offset_,
                  "the upload is stored with fewer bytes than it has");
  committed_ = offset_;
  return {};
}

Result<Upload> UploadWriter::pause() {
  if (Status s = commit(); !s.ok()) return s.error();
  return row_;
}

Result<Upload> UploadWriter::finish(const std::string& sha256) {
  const std::string& expected = sha256.empty() ? row_.sha256 : sha256;
  if (!is_sha256_hex(expected)) {
    return field_error("NAME_MALFORMED", "finish.sha256",
                       quoted_value(expected) + " is not 64 lower-case hexadecimal digits");
  }
  if (Status s = commit(); !s.ok()) return s.error();
  if (offset_ != row_.size_bytes) return offset_mismatch(row_.size_bytes, offset_);
  hashed_ = true;
  ASSIGN_OR_RETURN(const std::string digest, digest_.finish(row_.size_bytes));
  if (digest != expected) {
    (void)remove_kept(uploads_.files_, uploads_.paths_, uploads_.part_path(row_.key()));
    (void)uploads_.store_.uploads().remove(row_.key());
    Error e = make_error(ErrorCode::kInvalidArgument, "CONTENT_HASH_MISMATCH",
                         "the received bytes have the SHA-256 " + digest + ", not " + expected +
                             "; the upload was dropped");
    e.metadata = {{"expected", expected}, {"got", digest}};
    return e;
  }
  if (expected == row_.sha256) return name_file(expected);
  const Uploads::Part named{expected, row_.size_bytes, row_.project};
  if (!uploads_.claim(named)) return upload_busy();
  Result<Upload> upload = name_file(expected);
  uploads_.release(named);
  return upload;
}

/// Renames the part to the complete file with that digest. The row becomes complete first: it is
/// the proof that the project has sent the bytes. If the daemon ends between the two, or the rename
/// fails, find() reports all bytes but no complete upload, and finish() of a new stream renames it.
Result<Upload> UploadWriter::name_file(const std::string& sha256) {
  TRAINYARD_CHECK(committed_ == row_.size_bytes,
                  "the upload " + sha256 + " is reported complete with " +
                      std::to_string(committed_) + " of " + std::to_string(row_.size_bytes) +
                      " bytes on the disk");
  const UploadKey key{row_.project, sha256, row_.size_bytes};
  UploadStore& rows = uploads_.store_.uploads();
  if (sha256 != row_.sha256) {
    // Create the row that a correctly named part would have.
    if (const Result<Upload> row = rows.begin(key); !row.ok()) return row.error();
    if (const Result<Upload> row = rows.advance(key, row_.size_bytes); !row.ok()) {
      return row.error();
    }
  }
  ASSIGN_OR_RETURN(const Upload complete, rows.complete(key));
  if (Status s = uploads_.files_.rename_durable(uploads_.part_path(row_.key()),
                                                uploads_.paths_.upload(sha256));
      !s.ok()) {
    return s.error();
  }
  spdlog::info("event=upload_completed sha256={} bytes={}", sha256, row_.size_bytes);
  if (sha256 != row_.sha256) {
    if (Status s = rows.remove(row_.key()); !s.ok()) return s.error();
  }
  return complete;
}

Uploads::Uploads(Store& store, Files& files, const Clock& clock, StatePaths paths,
                 int64_t bytes_max, DiskWatch* disk)
    : store_(store),
      files_(files),
      clock_(clock),
      paths_(std::move(paths)),
      bytes_max_(bytes_max),
      disk_(disk) {}

std::filesystem::path Uploads::part_path(const UploadKey& key) const {
  return paths_.upload_part(key.project, key.sha256, key.size_bytes);
}

bool Uploads::holds_part(const Upload& row) const {
  if (row.committed_size == 0) return true;
  std::error_code ec;
  const auto bytes = std::filesystem::file_size(part_path(row.key()), ec);
  return !ec && static_cast<int64_t>(bytes) >= row.committed_size;
}

Result<Upload> Uploads::find(const UploadKey& key) const {
  ASSIGN_OR_RETURN(Upload row, store_.uploads().find(key.project, key.sha256, key.size_bytes));
  std::error_code ec;
  if (row.complete && std::filesystem::exists(paths_.upload(key.sha256), ec)) return row;
  // A complete upload without its file: its part was not renamed yet, or the file was deleted
  // manually and can be uploaded again. That another project's file exists proves nothing for an
  // incomplete one.
  row.complete = false;
  if (!holds_part(row)) row.committed_size = 0;
  return row;
}

Result<std::unique_ptr<UploadWriter>> Uploads::open(const UploadKey& key, int64_t offset) {
  const auto& [project, sha256, size_bytes] = key;
  if (!is_sha256_hex(sha256)) {
    return field_error("NAME_MALFORMED", "start.sha256",
                       quoted_value(sha256) + " is not 64 lower-case hexadecimal digits");
  }
  if (size_bytes < 1) {
    return field_error("FIELD_OUT_OF_RANGE", "start.size_bytes",
                       std::to_string(size_bytes) + " is out of range, expected at least 1");
  }
  if (size_bytes > bytes_max_) return too_large(size_bytes, bytes_max_);
  const Part part = part_of(key);
  if (!claim(part)) {
    return upload_busy();
  }
  // From here on every return releases the claim.
  struct Claim {
    Uploads* uploads;
    const Part& part;
    ~Claim() {
      if (uploads != nullptr) uploads->release(part);
    }
  } claimed{this, part};

  ASSIGN_OR_RETURN(const Upload seen, find(key));
  if (seen.complete) return std::unique_ptr<UploadWriter>();
  if (disk_ != nullptr) {
    if (Status s = disk_->check(size_bytes - seen.committed_size); !s.ok()) return s.error();
  }
  if (seen.committed_size == 0) {  // also if only the file was deleted
    if (Status s = store_.uploads().remove(key); !s.ok()) return s.error();
  }
  ASSIGN_OR_RETURN(const Upload row, store_.uploads().begin(key));
  if (offset != row.committed_size) return offset_mismatch(offset, row.committed_size);
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (offset == 0 ? O_TRUNC : 0);
  UniqueFd file(::open(part_path(key).c_str(), flags, 0600));
  if (!file) return storage_error("open", errno);
  // A power cut must not lose the directory entry of bytes that will be committed.
  if (offset == 0) {
    if (Status s = files_.sync_directory(paths_.uploads()); !s.ok()) return s.error();
  }
  // The client sends bytes beyond the committed size again, because they were never acknowledged.
  if (::ftruncate(file.get(), row.committed_size) != 0) return storage_error("truncate", errno);
  claimed.uploads = nullptr;
  return std::unique_ptr<UploadWriter>(new UploadWriter(
      *this, row, std::move(file), may_start_thread(), take_hash(part, row.committed_size)));
}

bool Uploads::claim(const Part& part) {
  const Part digest{part.sha256};
  const MutexLock lock(mu_);
  if (busy_.contains(digest)) return false;
  if (part == digest) {
    const auto it = busy_.lower_bound(digest);
    if (it != busy_.end() && it->sha256 == part.sha256) return false;
  }
  return busy_.insert(part).second;
}

void Uploads::release(const Part& part) {
  const MutexLock lock(mu_);
  busy_.erase(part);
}

void Uploads::keep_hash(const Part& part, FollowingDigest::State hashed) {
  if (hashed.bytes == 0) return;
  const MutexLock lock(mu_);
  if (hashes_.size() >= kHashesMax) hashes_.erase(hashes_.begin());
  hashes_.insert_or_assign(part, std::move(hashed));
}

FollowingDigest::State Uploads::take_hash(const Part& part, int64_t committed) {
  const MutexLock lock(mu_);
  const auto kept = hashes_.extract(part);
  // Bytes that were hashed but not committed are sent again and may differ then.
  if (!kept || kept.mapped().bytes > committed) return {};
  return std::move(kept.mapped());
}

bool Uploads::may_start_thread() {
  const MutexLock lock(mu_);
  return busy_.size() <= kHashThreadsMax;
}

void Uploads::remove_idle(int64_t as_of_us) {
  const Result<std::vector<Upload>> idle = store_.uploads().list_idle(as_of_us - kIdleUsMax);
  if (!idle.ok()) return;
  for (const Upload& upload : *idle) {
    const Part part = part_of(upload.key());
    if (!claim(part)) continue;  // it has a writer now
    (void)remove_kept(files_, paths_, part_path(upload.key()));
    (void)store_.uploads().remove(upload.key());
    release(part);
    spdlog::info("event=upload_expired sha256={} bytes={}", upload.sha256, upload.committed_size);
  }
}

void Uploads::expire() {
  remove_idle(clock_.wall_us());
  bool due = false;
  {
    const MutexLock lock(mu_);
    due = !collected_us_ || clock_.steady_us() - *collected_us_ >= kIdleUsMax;
  }
  if (due) collect();
}

void Uploads::collect() {
  {
    const MutexLock lock(mu_);
    collected_us_ = clock_.steady_us();
  }
  remove_complete(clock_.wall_us());
}

void Uploads::remove_complete(int64_t as_of_us) {
  const Result<UnusedUploads> unused = store_.uploads().list_unused(as_of_us - kIdleUsMax);
  if (!unused.ok()) return;
  std::vector<UploadKey> keys;
  for (const Upload& upload : unused->uploads) keys.push_back(upload.key());
  remove_unused(std::move(keys));
}

Result<std::vector<Upload>> Uploads::list_unused(int64_t as_of_us) const {
  const int64_t before_us = as_of_us - kIdleUsMax;
  ASSIGN_OR_RETURN(std::vector<Upload> uploads, store_.uploads().list_idle(before_us));
  ASSIGN_OR_RETURN(UnusedUploads unused, store_.uploads().list_unused(before_us));
  for (Upload& upload : unused.uploads) {
    if (unused.files.erase(upload.sha256) > 0) uploads.push_back(std::move(upload));
  }
  return uploads;
}

void Uploads::remove_unused(std::vector<UploadKey> keys) {
  // The claims prevent uploads of these files while their rows and then the files are deleted.
  std::set<std::string> claimed;
  std::erase_if(keys, [&](const UploadKey& key) {
    if (claimed.contains(key.sha256)) return false;
    return !claim({key.sha256}) || !claimed.insert(key.sha256).second;
  });
  if (keys.empty()) return;
  const Result<std::vector<std::string>> removed = store_.uploads().remove_unused(keys);
  if (removed.ok()) {
    for (const std::string& sha256 : *removed) {
      (void)remove_kept(files_, paths_, paths_.upload(sha256));
      spdlog::info("event=upload_deleted sha256={}", sha256);
    }
  }
  for (const std::string& sha256 : claimed) release({sha256});
}

}  // namespace trainyard::server
