// src/base/protobuf_message.h: writes one message in the Protocol Buffers wire format, as far as
// ONNX files and SentencePiece's models need it. The engine builds without Protobuf, and a writer
// is short.
//
// Fields are written in the order in which they are added, which should be ascending, as in
// Protobuf's own writers. Large byte strings are not copied: the weights of a model are written
// from their original memory.
//
// Source: "Encoding", the Protocol Buffers documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

class ProtobufMessage {
 public:
  /// Adds an int32, int64 or enum as a varint; negative numbers take ten bytes.
  void add_int(int field, int64_t value);
  void add_float(int field, float value);
  void add_text(int field, std::string_view value);
  /// Keeps a reference to `value`, which must outlive the message and every message that includes
  /// it.
  void add_borrowed(int field, std::span<const std::byte> value);
  void add_message(int field, ProtobufMessage message);

  int64_t size_bytes() const;
  /// Returns the parts of the message, to be written one after another. Valid until the message is
  /// changed or moved.
  std::vector<std::span<const std::byte>> parts() const;

 private:
  struct Piece {
    std::string own;
    std::span<const std::byte> borrowed;
  };
  void add_tag(int field, uint64_t wire_type);
  void add_varint(uint64_t value);
  std::string& tail();

  std::vector<Piece> pieces_;  // each consists of own bytes, followed by borrowed bytes
};

}  // namespace trainyard
