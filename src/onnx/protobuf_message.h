// src/onnx/protobuf_message.h: one message in the Protocol Buffers wire format, as much of it as
// ONNX needs. The engine builds without Protobuf, and writing is a page of code.
//
// Fields stand in the order in which they are added; callers add them by rising number, as
// Protobuf's own writers do. Large byte strings are borrowed: the weights of a model are written
// from where they are.
//
// Source: "Encoding", the Protocol Buffers documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::onnx {

class ProtobufMessage {
 public:
  /// int32, int64, enum: a varint; negative numbers take ten bytes.
  void add_int(int field, int64_t value);
  void add_float(int field, float value);
  void add_text(int field, std::string_view value);
  /// Borrows `value`, which must outlive the message and every message that it becomes part of.
  void add_borrowed(int field, std::span<const std::byte> value);
  void add_message(int field, ProtobufMessage message);

  int64_t size_bytes() const;
  /// What to write, one after another. Valid as long as the message is neither changed nor moved.
  std::vector<std::span<const std::byte>> parts() const;

 private:
  struct Piece {
    std::string own;
    std::span<const std::byte> borrowed;
  };
  void add_tag(int field, uint64_t wire_type);
  void add_varint(uint64_t value);
  std::string& tail();

  std::vector<Piece> pieces_;  // each is its own bytes, then those that it borrows
};

}  // namespace trainyard::onnx
