// src/base/wire_reader.h: the fields of one message in the Protocol Buffers wire format, one after
// another, without Protobuf: the reading half of src/onnx/protobuf_message.h. Nothing is copied,
// and no length is believed before it has been held against the bytes that there are.
//
// Source: "Encoding", the Protocol Buffers documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// What is read, for messages: "not a valid ONNX file", by ONNX_INVALID.
struct WireFormat {
  const char* reason;
  const char* refusal;
};
/// INVALID_ARGUMENT: the file is broken. `what` says where.
Error invalid_wire(const WireFormat& format, const std::string& what);

struct WireField {
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  int number = 0;
  Type type = Type::kVarint;
  uint64_t bits = 0;                 // of the three types of numbers
  std::span<const std::byte> bytes;  // of kBytes
  size_t at = 0;                     // where the file has it
  const WireFormat* format = nullptr;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

class WireReader {
 public:
  /// `format` must outlive what is read. `at`: where `bytes` stand in the file, for messages.
  WireReader(const WireFormat& format, std::span<const std::byte> bytes, size_t at = 0)
      : format_(&format), bytes_(bytes), at_(at) {}
  /// The message that a field holds.
  static Result<WireReader> of(const WireField& field);

  bool done() const { return position_ == bytes_.size(); }
  Result<WireField> next();

 private:
  Result<uint64_t> varint();
  Error broken(const std::string& what) const;

  const WireFormat* format_;
  std::span<const std::byte> bytes_;
  size_t at_;
  size_t position_ = 0;
};

/// Calls `take(field)` for each field of the message; what it does not know it leaves.
template <typename Take>
Status for_each_field(WireReader reader, Take take) {
  while (!reader.done()) {
    ASSIGN_OR_RETURN(const WireField inner, reader.next());
    if (Status s = take(inner); !s.ok()) return s;
  }
  return {};
}
template <typename Take>
Status for_each_field(const WireField& field, Take take) {
  ASSIGN_OR_RETURN(const WireReader reader, WireReader::of(field));
  return for_each_field(reader, take);
}

/// What a field must be; a refusal of one of another wire type.
Result<int64_t> int_of(const WireField& field);
Result<float> float_of(const WireField& field);
Result<std::string> text_of(const WireField& field);
/// Of a repeated field, one entry or several packed ones: appended to `values`. What is appended
/// takes at most eight times the bytes of the file that it was read from.
Status append_ints(const WireField& field, std::vector<int64_t>& values);
Status append_floats(const WireField& field, std::vector<float>& values);
Status append_doubles(const WireField& field, std::vector<double>& values);

}  // namespace trainyard
