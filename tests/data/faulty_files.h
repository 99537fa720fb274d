// tests/data/faulty_files.h: the local file system with a failure at a chosen operation. A failing
// write leaves half of the file behind, as on a full disk; a failing rename may have taken effect.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "src/base/files.h"
#include "tests/data/unsynced_files.h"

namespace trainyard {

class FaultyFiles final : public Files {
 public:
  enum class Mode { kBefore, kAfter, kCrash };
  /// Operation number `fail_at` (from 0) fails: before it has any effect (kBefore), or with an
  /// error after it took effect (kAfter). With kCrash, neither it nor any later operation,
  /// including removals, has an effect.
  explicit FaultyFiles(int fail_at = -1, Mode mode = Mode::kBefore)
      : fail_at_(fail_at), mode_(mode) {}
  int operations() const { return operations_; }

  Status write_file(const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    if (!fails()) return files_.write_file(path, parts);
    if (crashed_ > 1) return error();
    size_t half = 0;
    for (const auto& part : parts) half += part.size();
    half /= 2;
    std::vector<std::span<const std::byte>> cut;
    for (const auto& part : parts) {
      cut.push_back(part.first(std::min(part.size(), half)));
      half -= cut.back().size();
    }
    (void)files_.write_file(path, mode_ == Mode::kAfter ? parts : cut);
    return error();
  }
  Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                  int64_t bytes) override {
    if (fails()) return error();
    auto inner = files_.create_file(path, bytes);
    if (!inner.ok()) return inner;
    return std::make_unique<Filler>(*this, *std::move(inner));
  }
  Status rename_durable(const std::filesystem::path& from,
                        const std::filesystem::path& to) override {
    if (!fails()) return files_.rename_durable(from, to);
    if (mode_ == Mode::kAfter) (void)files_.rename_durable(from, to);
    return error();
  }
  Status sync_directory(const std::filesystem::path& directory) override {
    return fails() ? Status(error()) : files_.sync_directory(directory);
  }
  Status create_directories(const std::filesystem::path& directory) override {
    if (!fails()) return files_.create_directories(directory);
    if (mode_ == Mode::kAfter) (void)files_.create_directories(directory);
    return error();
  }
  Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return fails() ? Status(error()) : files_.link_file(from, to);
  }
  Status remove_all(const std::filesystem::path& path) override {
    return fails() ? Status(error()) : files_.remove_all(path);
  }

 private:
  class Filler final : public FileFiller {
   public:
    Filler(FaultyFiles& files, std::unique_ptr<FileFiller> inner)
        : files_(files), inner_(std::move(inner)) {}
    Status write_at(int64_t offset, std::span<const std::byte> bytes) override {
      if (!files_.fails()) return inner_->write_at(offset, bytes);
      (void)inner_->write_at(offset, bytes.first(bytes.size() / 2));
      return error();
    }
    Status finish() override { return files_.fails() ? Status(error()) : Status(); }

   private:
    FaultyFiles& files_;
    std::unique_ptr<FileFiller> inner_;
  };

  bool fails() {
    const std::lock_guard lock(mu_);
    const int operation = operations_++;
    if (mode_ == Mode::kCrash && fail_at_ >= 0 && operation >= fail_at_) {
      ++crashed_;
      return true;
    }
    return operation == fail_at_;
  }
  static Error error() {
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL", "no space left on device");
  }
  UnsyncedFiles files_;
  int fail_at_;
  Mode mode_;
  std::mutex mu_;  // several threads may write through one filler
  int operations_ = 0;
  int crashed_ = 0;
};

}  // namespace trainyard
