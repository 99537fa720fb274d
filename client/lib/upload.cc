#include "client/lib/upload.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "src/base/crc32c.h"
#include "src/base/files.h"
#include "src/base/folder_files.h"
#include "src/base/following_digest.h"
#include "src/base/sha256.h"
#include "src/base/tar_folder.h"
#include "src/checkpoint/merged_weights.h"

namespace trainyard::client {
namespace {

constexpr Rpc<v1::GetUploadRequest, v1::Upload> kGetUpload{"DatasetService/GetUpload"};

using std::chrono::milliseconds;

/// Returns whether sending the same bytes again may succeed after this error: the connection broke,
/// a chunk was damaged in transit, the server has committed fewer bytes than expected, or an
/// earlier stream of this client is not closed yet.
bool may_resume(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.reason == "CHUNK_CHECKSUM_MISMATCH" ||
         error.reason == "UPLOAD_OFFSET_MISMATCH" || error.reason == "UPLOAD_BUSY" ||
         error.reason == "UPLOAD_PAUSED";
}

/// The bytes to upload: existing ones, or bytes generated on demand.
class Content {
 public:
  virtual ~Content() = default;
  virtual int64_t size() const = 0;
  /// Returns `count` bytes from `offset` on, valid until the next call.
  virtual Result<std::string_view> read(int64_t offset, int64_t count) = 0;
  /// Returns an owner that keeps all memory returned by read() valid; null if there is none.
  virtual std::shared_ptr<const void> owner() const { return nullptr; }
};

class MappedContent final : public Content {
 public:
  explicit MappedContent(MappedFile file)
      : file_(std::make_shared<const MappedFile>(std::move(file))) {}
  int64_t size() const override { return std::ssize(file_->bytes()); }
  Result<std::string_view> read(int64_t offset, int64_t count) override {
    return view(offset, count);
  }
  std::shared_ptr<const void> owner() const override { return file_; }
  /// Thread-safe.
  std::string_view view(int64_t offset, int64_t count) const {
    return {reinterpret_cast<const char*>(file_->bytes().data()) + offset,
            static_cast<size_t>(count)};
  }

 private:
  std::shared_ptr<const MappedFile> file_;
};

class FolderContent final : public Content {
 public:
  explicit FolderContent(TarFolder tar) : tar_(std::move(tar)) {}
  int64_t size() const override { return tar_.size(); }
  Result<std::string_view> read(int64_t offset, int64_t count) override {
    piece_.clear();
    if (Status s = tar_.read(offset, count, piece_); !s.ok()) return std::move(s).error();
    return std::string_view(piece_);
  }

 private:
  TarFolder tar_;
  std::string piece_;
};

/// The files of an index as one file, or one file with its tensors in another order.
class MergedContent final : public Content {
 public:
  explicit MergedContent(MergedWeights weights) : weights_(std::move(weights)) {}
  int64_t size() const override { return weights_.size(); }
  Result<std::string_view> read(int64_t offset, int64_t count) override {
    piece_.clear();
    weights_.read(offset, count, piece_);
    return std::string_view(piece_);
  }

 private:
  MergedWeights weights_;
  std::string piece_;
};

Result<std::string> digest_of(Content& content) {
  Sha256 digest;
  for (int64_t offset = 0; offset < content.size(); offset += kUploadChunkBytes) {
    ASSIGN_OR_RETURN(const std::string_view piece,
                     content.read(offset, std::min(kUploadChunkBytes, content.size() - offset)));
    digest.update(piece);
  }
  return digest.finish();
}

/// The name under which a file is uploaded.
class UploadName {
 public:
  /// The digest is the name.
  explicit UploadName(std::string sha256) : name_(sha256), sha256_(std::move(sha256)) {}
  /// `name` is a placeholder for the digest, which a thread computes while the content is sent.
  UploadName(std::string name, const MappedContent& content)
      : name_(std::move(name)), size_(content.size()) {
    digest_.emplace(
        [&content](Sha256& hash, int64_t offset, int64_t count) -> Status {
          hash.update(content.view(offset, count));
          return {};
        },
        /*threaded=*/true);
  }

  const std::string& name() const { return name_; }
  /// Reports that the first `bytes` bytes were sent, which the digest may then include.
  void sent(int64_t bytes) {
    if (digest_) digest_->follow_to(bytes);
  }
  /// Returns the digest; waits until it is computed.
  Result<std::string> sha256() {
    if (sha256_.empty()) {
      ASSIGN_OR_RETURN(sha256_, digest_->finish(size_));
      digest_.reset();
    }
    return sha256_;
  }

 private:
  const std::string name_;
  const int64_t size_ = 0;
  std::string sha256_;
  std::optional<FollowingDigest> digest_;
};

/// Returns a placeholder digest by which a repeated upload of the same file is recognized. It is
/// derived from the file's size, modification time, first and last bytes.
std::string placeholder_name(const MappedContent& content, const std::filesystem::path& path) {
  constexpr int64_t kEndBytes = int64_t{64} << 10;
  std::error_code unknown;
  const auto time = std::filesystem::last_write_time(path, unknown);
  Sha256 digest;
  digest.update("trainyard upload " + std::to_string(content.size()) + " " +
                std::to_string(unknown ? 0 : time.time_since_epoch().count()) + " ");
  const int64_t part = std::min(content.size(), kEndBytes);
  digest.update(content.view(0, part));
  digest.update(content.view(content.size() - part, part));
  return digest.finish();
}

/// Sends one stream from `offset` to the end of the content.
Result<v1::Upload> send_from(Client& client, Content& content, UploadName& name, int64_t offset,
                             UploadProgress progress, const UploadObserver& observer,
                             std::stop_token stop) {
  const auto stream = client.open_upload();
  const std::stop_callback on_stop(stop, [&] { stream->cancel(); });
  v1::UploadFileRequest message;
  message.mutable_start()->set_parent(client.parent());
  message.mutable_start()->set_sha256(name.name());
  message.mutable_start()->set_size_bytes(progress.total_bytes);
  message.mutable_start()->set_offset(offset);
  name.sent(offset);
  bool open = stream->write(message);
  while (open && offset < progress.total_bytes) {
    const int64_t count = std::min(kUploadChunkBytes, progress.total_bytes - offset);
    const Result<std::string_view> piece = content.read(offset, count);
    if (!piece.ok()) {
      stream->cancel();
      (void)stream->close();
      return piece.error();
    }
    const std::string_view data = *piece;
    open = stream->write_chunk(offset, data, crc32c(data), content.owner());
    offset += static_cast<int64_t>(data.size());
    progress.sent_bytes = offset;
    name.sent(offset);
    if (open && observer) observer(progress);
  }
  if (open) {
    const Result<std::string> sha256 = name.sha256();
    if (!sha256.ok()) {
      stream->cancel();
      (void)stream->close();
      return sha256.error();
    }
    v1::UploadFileRequest::Finish& finish = *message.mutable_finish();
    if (*sha256 != name.name()) finish.set_sha256(*sha256);
    open = stream->write(message);
  }
  return stream->close();  // if the stream is broken, this returns the reason
}

/// Queries how many of the content's `size` bytes the server has.
Result<v1::Upload> get_upload(Client& client, const std::string& digits, int64_t size) {
  v1::GetUploadRequest request;
  request.set_name(client.parent() + "/uploads/" + digits);
  request.set_size_bytes(size);
  return client.call(kGetUpload, request);
}

/// Sends the bytes that the server does not have yet, and returns the content's SHA-256.
Result<std::string> upload_as(UploadName& name, Client& client, Content& content,
                              const std::filesystem::path& path, const UploadObserver& observer,
                              std::stop_token stop) {
  UploadProgress progress{shown_name(path), 0, content.size()};
  int64_t best_committed = -1;
  int tries = 0;
  Error last;
  milliseconds pause{100};
  while (true) {
    if (stop.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "INTERRUPTED",
                        path.string() +
                            ": upload interrupted; the server keeps what it received for an hour, "
                            "and the same command resumes from there");
    }
    ASSIGN_OR_RETURN(const v1::Upload have, get_upload(client, name.name(), progress.total_bytes));
    if (have.complete()) return name.sha256();
    if (have.committed_size() < 0 || have.committed_size() > progress.total_bytes) {
      return make_error(ErrorCode::kDataLoss, "UPLOAD_OFFSET_MISMATCH",
                        path.string() + ": the server says that it has " +
                            std::to_string(have.committed_size()) + " bytes of " +
                            std::to_string(progress.total_bytes));
    }
    tries = have.committed_size() > best_committed ? 0 : tries + 1;
    best_committed = std::max(best_committed, have.committed_size());
    if (tries > kUploadTriesMax) return last;

    progress.sent_bytes = have.committed_size();
    auto sent = send_from(client, content, name, have.committed_size(), progress, observer, stop);
    if (sent.ok() && sent->complete()) return name.sha256();
    if (!sent.ok() && !stop.stop_requested() && !may_resume(sent.error()))
      return std::move(sent).error();
    last = sent.ok() ? make_error(ErrorCode::kDataLoss, "UPLOAD_INCOMPLETE",
                                  path.string() + ": the server did not accept the whole file")
                     : std::move(sent).error();
    if (tries > 0) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(2000));
    }
  }
}

/// Computes the digest first, then sends the content under it.
Result<std::string> upload(Client& client, Content& content, const std::filesystem::path& path,
                           const UploadObserver& observer, std::stop_token stop) {
  ASSIGN_OR_RETURN(std::string sha256, digest_of(content));
  UploadName name(std::move(sha256));
  return upload_as(name, client, content, path, observer, stop);
}

}  // namespace

Result<std::string> upload_file(Client& client, const std::filesystem::path& path,
                                const UploadObserver& observer, std::stop_token stop) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    const char* why = std::filesystem::is_directory(path, failed) ? ": a folder, expected a file"
                      : std::filesystem::exists(path, failed)     ? ": not a regular file"
                                                                  : ": no such file";
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND", path.string() + why);
  }
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  MappedContent content(std::move(file));
  if (content.size() == 0) {
    return make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID",
                      path.string() + ": the file is empty");
  }
  if (content.size() >= kUploadAtOnceBytes) {
    UploadName name(placeholder_name(content, path), content);
    ASSIGN_OR_RETURN(const v1::Upload have, get_upload(client, name.name(), content.size()));
    if (have.size_is_new()) {
      Result<std::string> sha256 = upload_as(name, client, content, path, observer, stop);
      if (sha256.ok() || sha256.error().reason != "CONTENT_HASH_MISMATCH") return sha256;
      // The server had bytes of another file with the same placeholder; upload under the digest
      // instead.
    }
  }
  return upload(client, content, path, observer, stop);
}

Result<std::string> upload_folder(Client& client, const std::filesystem::path& path,
                                  const UploadObserver& observer, std::stop_token stop) {
  ASSIGN_OR_RETURN(TarFolder tar, TarFolder::open(path));
  FolderContent content(std::move(tar));
  return upload(client, content, path, observer, stop);
}

Result<std::string> upload_weights(Client& client, const std::filesystem::path& path,
                                   const UploadObserver& observer, std::stop_token stop) {
  Result<WeightsFile> weights = WeightsFile::open(path);
  if (!is_weights_index(path) && (!weights.ok() || !needs_alignment(*weights))) {
    return upload_file(client, path, observer, stop);  // the server says what is wrong with a file
  }
  if (!weights.ok()) return std::move(weights).error();
  ASSIGN_OR_RETURN(MergedWeights merged, MergedWeights::merge(std::move(*weights)));
  MergedContent content(std::move(merged));
  return upload(client, content, path, observer, stop);
}

}  // namespace trainyard::client
