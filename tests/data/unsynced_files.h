// tests/data/unsynced_files.h: the local file system without fsync, for tests that write thousands
// of files and need no protection from power failures.
#pragma once

#include <filesystem>
#include <fstream>

#include "src/base/files.h"

namespace trainyard {

class UnsyncedFiles : public Files {
 public:
  Status write_file(const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    for (const auto& part : parts) {
      out.write(reinterpret_cast<const char*>(part.data()),
                static_cast<std::streamsize>(part.size()));
    }
    return out.flush() ? Status() : Status(failed());
  }
  Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                  int64_t bytes) override {
    return local_files().create_file(path, bytes);
  }
  Status rename_durable(const std::filesystem::path& from,
                        const std::filesystem::path& to) override {
    std::error_code ec;
    std::filesystem::rename(from, to, ec);
    return ec ? Status(failed()) : Status();
  }
  Status sync_directory(const std::filesystem::path&) override { return {}; }
  Status create_directories(const std::filesystem::path& directory) override {
    std::error_code ec;
    std::filesystem::create_directories(directory, ec);
    return ec ? Status(failed()) : Status();
  }
  Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return local_files().link_file(from, to);
  }
  Status remove_all(const std::filesystem::path& path) override {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
    return ec ? Status(failed()) : Status();
  }

 private:
  static Error failed() {
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "a file operation failed");
  }
};

}  // namespace trainyard
