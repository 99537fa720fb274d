#include "src/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "src/base/files.h"
#include "src/base/handle.h"

namespace trainyard {

struct Sha256::Impl {
  Handle<EVP_MD_CTX, EVP_MD_CTX_free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  TRAINYARD_CHECK(
      impl_->context && EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) == 1,
      "libcrypto offers no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  TRAINYARD_CHECK(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) == 1,
                  "SHA-256 update");
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  TRAINYARD_CHECK(EVP_DigestFinal_ex(impl_->context.get(), digest.data(), &size) == 1 && size == 32,
                  "SHA-256 finish");
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  for (const unsigned char byte : digest) {
    hex += kHex[byte >> 4];
    hex += kHex[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::string_view text) {
  Sha256 digest;
  digest.update(text);
  return digest.finish();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return file_error("cannot open", path, errno);
  Sha256 digest;
  std::vector<char> chunk(1 << 20);
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot read", path, errno);
    if (n == 0) return digest.finish();
    digest.update(std::string_view(chunk.data(), static_cast<size_t>(n)));
  }
}

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace trainyard
