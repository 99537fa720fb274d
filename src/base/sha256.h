// src/base/sha256.h: SHA-256 (FIPS 180-4) by OpenSSL's libcrypto, for content addresses and
// checksums.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard {

/// Incremental digest. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Returns 64 lower-case hexadecimal digits. The object cannot be used afterwards.
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string sha256_hex(std::string_view text);
/// Returns the digest of a file's content, read in 1 MiB pieces. Errors: file_error() of
/// src/base/files.h.
Result<std::string> sha256_file(const std::filesystem::path& path);
/// Returns true for 64 lower-case hexadecimal digits: the only form in which a client may name
/// content.
bool is_sha256_hex(std::string_view text);

}  // namespace trainyard
