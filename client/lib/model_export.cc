#include "client/lib/model_export.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

bool is_file_name(const std::string& name) {
  static constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

/// The file that is currently written, under a temporary name.
class Part {
 public:
  Part(const fs::path& folder, ExportedFile file)
      : file_(std::move(file)),
        target_(folder / file_.filename),
        path_(folder / (file_.filename + ".part")),
        out_(path_, std::ios::binary | std::ios::trunc) {}
  ~Part() {
    if (done_) return;
    out_.close();
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

  Status append(const std::string& data) {
    written_ += static_cast<int64_t>(data.size());
    if (written_ > file_.size_bytes) return damaged("is longer than announced");
    digest_.update(data);
    out_.write(data.data(), static_cast<std::streamsize>(data.size()));
    if (!out_) return failed("cannot be written");
    return {};
  }
  Result<ExportedFile> finish() {
    if (written_ != file_.size_bytes) return damaged("is shorter than announced");
    if (digest_.finish() != file_.sha256) return damaged("does not match its SHA-256");
    out_.close();
    if (!out_) return failed("cannot be written");
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) return failed("cannot be renamed: " + error.message());
    done_ = true;
    return file_;
  }

 private:
  Error damaged(const std::string& what) const {
    return make_error(ErrorCode::kDataLoss, "CONTENT_HASH_MISMATCH",
                      file_.filename + " " + what + "; try again");
  }
  Error failed(const std::string& what) const {
    return make_error(ErrorCode::kInternal, "STORAGE_ERROR", path_.string() + ": " + what);
  }
  ExportedFile file_;
  fs::path target_;
  fs::path path_;
  std::ofstream out_;
  Sha256 digest_;
  int64_t written_ = 0;
  bool done_ = false;
};

}  // namespace

Result<std::vector<ExportedFile>> export_model(Client& client, const std::string& name,
                                               const fs::path& folder, std::stop_token stop) {
  std::vector<ExportedFile> files;
  std::optional<Part> part;
  const auto finish_part = [&]() -> Status {
    if (!part) return {};
    auto finished = part->finish();
    part.reset();
    if (!finished.ok()) return std::move(finished).error();
    files.push_back(*finished);
    return {};
  };
  const Status status =
      client.download_model(name, stop, [&](const v1::DownloadModelResponse& message) -> Status {
        if (message.has_header()) {
          if (Status done = finish_part(); !done.ok()) return done;
          const auto& header = message.header();
          if (!is_file_name(header.filename()) || header.size_bytes() < 0) {
            return make_error(ErrorCode::kDataLoss, "FILE_NAME_INVALID",
                              "the server sent the file name " + quoted_value(header.filename()) +
                                  ", which is not a plain file name");
          }
          std::error_code error;
          fs::create_directories(
              folder,
              // created with the first message, so that an unknown model leaves no folder behind
              error);
          if (error) {
            return make_error(ErrorCode::kInternal, "STORAGE_ERROR",
                              folder.string() + ": cannot be created: " + error.message());
          }
          part.emplace(folder,
                       ExportedFile{header.filename(), header.size_bytes(), header.sha256()});
          return {};
        }
        if (!part)
          return make_error(ErrorCode::kDataLoss, "STREAM_MALFORMED",
                            "the server sent model data before the file's header");
        return part->append(message.data());
      });
  if (!status.ok()) return status.error();
  if (Status done = finish_part(); !done.ok()) return std::move(done).error();
  if (files.empty())
    return make_error(ErrorCode::kDataLoss, "STREAM_MALFORMED", "the model has no files");
  return files;
}

std::string export_json(const std::string& folder, const std::vector<ExportedFile>& files) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ExportedFile& file : files) {
    list.push_back(
        {{"filename", file.filename}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  return nlohmann::ordered_json{{"folder", folder}, {"files", list}}.dump();
}

}  // namespace trainyard::client
