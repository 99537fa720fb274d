#include "src/base/protobuf_message.h"

#include <bit>
#include <iterator>

namespace trainyard {
namespace {

constexpr uint64_t kVarint = 0;
constexpr uint64_t kLengthDelimited = 2;
constexpr uint64_t kFixed32 = 5;

}  // namespace

void ProtobufMessage::add_int(int field, int64_t value) {
  add_tag(field, kVarint);
  add_varint(static_cast<uint64_t>(value));
}

void ProtobufMessage::add_float(int field, float value) {
  add_tag(field, kFixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) {
    tail().push_back(static_cast<char>((bits >> shift) & 0xff));
  }
}

void ProtobufMessage::add_text(int field, std::string_view value) {
  add_tag(field, kLengthDelimited);
  add_varint(value.size());
  tail().append(value);
}

void ProtobufMessage::add_borrowed(int field, std::span<const std::byte> value) {
  add_tag(field, kLengthDelimited);
  add_varint(value.size());
  pieces_.back().borrowed = value;
}

void ProtobufMessage::add_message(int field, ProtobufMessage message) {
  add_tag(field, kLengthDelimited);
  add_varint(static_cast<uint64_t>(message.size_bytes()));
  for (Piece& piece : message.pieces_) {
    tail().append(piece.own);
    pieces_.back().borrowed = piece.borrowed;
  }
}

int64_t ProtobufMessage::size_bytes() const {
  int64_t size = 0;
  for (const Piece& piece : pieces_) size += std::ssize(piece.own) + std::ssize(piece.borrowed);
  return size;
}

std::vector<std::span<const std::byte>> ProtobufMessage::parts() const {
  std::vector<std::span<const std::byte>> parts;
  for (const Piece& piece : pieces_) {
    parts.push_back(std::as_bytes(std::span(piece.own)));
    if (!piece.borrowed.empty()) parts.push_back(piece.borrowed);
  }
  return parts;
}

void ProtobufMessage::add_tag(int field, uint64_t wire_type) {
  add_varint(static_cast<uint64_t>(field) << 3 | wire_type);
}

void ProtobufMessage::add_varint(uint64_t value) {
  std::string& out = tail();
  while (value >= 0x80) {
    out.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

std::string& ProtobufMessage::tail() {
  if (pieces_.empty() || !pieces_.back().borrowed.empty()) pieces_.emplace_back();
  return pieces_.back().own;
}

}  // namespace trainyard
