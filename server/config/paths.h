// server/config/paths.h: paths in the state folder. The store owns and locks the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "src/base/files.h"

namespace trainyard::server {

/// Names consist only of digests, uids, numbers and names of projects ([a-z0-9-]), so that no other
/// text from a client becomes part of a path.
class StatePaths {
 public:
  explicit StatePaths(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path worker_socket() const { return root_ / "worker.sock"; }
  std::filesystem::path uploads() const { return root_ / "uploads"; }
  std::filesystem::path upload(const std::string& sha256) const { return uploads() / sha256; }
  /// Returns the file of an incomplete upload. Each project has its own, so that none can continue
  /// or spoil what another one has sent.
  std::filesystem::path upload_part(const std::string& project, const std::string& sha256,
                                    int64_t size_bytes) const {
    return uploads() / (sha256 + "." + std::to_string(size_bytes) + "." + project + ".part");
  }
  std::filesystem::path dataset(const std::string& digest) const {
    return root_ / "datasets" / digest;
  }
  std::filesystem::path model(const std::string& job_uid) const {
    return root_ / "models" / job_uid;
  }
  /// Returns the weights of a model. If `job_uid` is empty, they are an upload.
  std::filesystem::path weights(const std::string& job_uid, const std::string& digest) const {
    return job_uid.empty() ? upload(digest) : model(job_uid) / "model.safetensors";
  }
  /// Returns the folder in which one task may write, by the name of what it makes. The folder with
  /// all of them is emptied when the daemon starts.
  std::filesystem::path scratch(const std::string& name) const { return scratches() / name; }
  std::filesystem::path scratches() const { return root_ / "scratch"; }
  /// Returns where a training worker of this host writes the model, from where it is moved to its
  /// place.
  std::filesystem::path written_model(const std::string& job_uid) const {
    return job(job_uid) / "model";
  }
  std::filesystem::path job(const std::string& job_uid) const { return root_ / "jobs" / job_uid; }
  std::filesystem::path checkpoints(const std::string& job_uid) const {
    return job(job_uid) / "checkpoints";
  }
  /// Returns the file of an attempt's reports that have not been acknowledged
  /// (server/protocol/report_spool.h).
  std::filesystem::path spool(const std::string& job_uid, int32_t attempt) const {
    return job(job_uid) / ("reports-" + std::to_string(attempt));
  }
  /// Returns the algorithms chosen for GPU libraries on this host (src/runtime/algorithms.h).
  std::filesystem::path algorithms() const { return root_ / "algorithms"; }
  std::filesystem::path logs() const { return root_ / "logs"; }
  /// Returns the hard links that preserve the files of a backup until they are sent
  /// (server/backup).
  std::filesystem::path backup() const { return root_ / "backup.staging"; }

  /// Returns whether `path` is inside one of the state folder's own folders, as everything that is
  /// ever deleted must be. Compares names only, without reading the file system.
  bool holds(const std::filesystem::path& path) const {
    int depth = 0;
    for (const std::filesystem::path& part : path.lexically_relative(root_)) {
      if (part == "..") return false;
      if (!part.empty() && part != ".") ++depth;
    }
    return depth >= 2;
  }

  /// Replaces the state folder's path in a text for users, because error messages of the file
  /// system contain paths.
  std::string hide(std::string text) const {
    const std::string root = root_.string();
    for (size_t at = text.find(root); at != std::string::npos; at = text.find(root, at)) {
      text.replace(at, root.size(), "STATE_DIR");
    }
    return text;
  }

  /// Creates the subfolders; the process's umask keeps them private.
  Status create(Files& files) const {
    for (const char* name :
         {"uploads", "datasets", "models", "jobs", "algorithms", "logs", "scratch"}) {
      if (Status s = files.create_directories(root_ / name); !s.ok()) return s;
    }
    return {};
  }

 private:
  std::filesystem::path root_;
};

}  // namespace trainyard::server
