#include "client/lib/backup_manifest.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"

namespace trainyard::client {
namespace {

constexpr size_t kPathBytesMax = 512;
constexpr std::array<std::string_view, 5> kStateFolders = {"uploads", "datasets", "models", "jobs",
                                                           "algorithms"};
constexpr std::array<std::string_view, 3> kStateFiles = {"trainyard.db", "trainyard.db.commit",
                                                         "trainyard.db.state"};

/// Returns whether the name is made of characters of digests, uids, steps and file names. It has no
/// leading dot, so it is never "..".
bool is_plain_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

}  // namespace

Error backup_damaged(const std::string& what) {
  return make_error(ErrorCode::kDataLoss, "BACKUP_DAMAGED", what);
}

bool is_backup_path(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax) return false;
  if (std::ranges::find(kStateFiles, path) != kStateFiles.end()) return true;
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return false;
  if (std::ranges::find(kStateFolders, path.substr(0, slash)) == kStateFolders.end()) return false;
  for (size_t at = slash + 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (!is_plain_name(path.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

std::string to_json(const BackupManifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const BackupFile& file : manifest.files) {
    files.push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  const nlohmann::ordered_json json = {{"format_version", manifest.format_version},
                                       {"server_version", manifest.server_version},
                                       {"created", manifest.created},
                                       {"commit", manifest.commit},
                                       {"files", std::move(files)}};
  return json.dump(1) + "\n";
}

Result<BackupManifest> parse_backup_manifest(std::string_view text) {
  BackupManifest manifest;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    manifest.format_version = json.at("format_version").get<int>();
    if (manifest.format_version > kBackupFormatVersion) {
      return make_error(ErrorCode::kFailedPrecondition, "BACKUP_NEWER",
                        "the backup has format " + std::to_string(manifest.format_version) +
                            ", and this trainyard supports formats up to " +
                            std::to_string(kBackupFormatVersion) +
                            "; use the version that wrote it");
    }
    manifest.server_version = json.at("server_version").get<std::string>();
    manifest.created = json.at("created").get<std::string>();
    manifest.commit = json.at("commit").get<int64_t>();
    for (const nlohmann::json& entry : json.at("files")) {
      BackupFile& file = manifest.files.emplace_back();
      file.path = entry.at("path").get<std::string>();
      file.size_bytes = entry.at("size_bytes").get<int64_t>();
      file.sha256 = entry.at("sha256").get<std::string>();
      if (!is_sha256_hex(file.sha256)) return backup_damaged("its manifest has a bad SHA-256");
    }
  } catch (const nlohmann::json::exception&) {
    return backup_damaged("its manifest cannot be read");
  }
  return manifest;
}

}  // namespace trainyard::client
