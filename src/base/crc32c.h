// src/base/crc32c.h: CRC-32C (Castagnoli, RFC 3720): the checksum of upload chunks and of
// TensorBoard records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trainyard {

/// Returns the checksum of earlier content, whose checksum is `crc`, followed by `bytes`; 0 is the
/// checksum of no content. Uses the CPU's CRC instruction if it has one. crc32c("123456789") is
/// 0xe3069283.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
inline uint32_t crc32c(std::string_view text, uint32_t crc = 0) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), crc);
}

/// Returns the table-driven version for CPUs without the instruction, exposed so that a test can
/// compare both versions.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace trainyard
