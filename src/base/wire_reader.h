// src/base/wire_reader.h: reads the fields of a message in the Protocol Buffers wire format one
// after another, without the Protobuf library (src/base/protobuf_message.h writes messages). It
// copies nothing, and checks each length against the number of bytes left before it uses it.
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

/// How errors name the format: `reason` is for example ONNX_INVALID, and `refusal` begins the
/// message: "not a valid ONNX file".
struct WireFormat {
  const char* reason;
  const char* refusal;
};
/// Returns the INVALID_ARGUMENT error for a broken file. `what` describes the problem and its
/// position.
Error invalid_wire(const WireFormat& format, const std::string& what);

struct WireField {
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  int number = 0;
  Type type = Type::kVarint;
  uint64_t bits = 0;                 // the value of kVarint, kFixed64 and kFixed32
  std::span<const std::byte> bytes;  // the content of kBytes
  size_t at = 0;                     // offset of the field's value in the file
  const WireFormat* format = nullptr;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

class WireReader {
 public:
  /// `format` must outlive the fields that are read. `at`: the offset of `bytes` in the file, for
  /// messages.
  WireReader(const WireFormat& format, std::span<const std::byte> bytes, size_t at = 0)
      : format_(&format), bytes_(bytes), at_(at) {}
  /// Returns a reader of the message that a kBytes field contains.
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

/// Calls `take(field)` for each field of the message. `take` ignores fields that it does not know.
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

/// Returns the value of a field; an error if the field has another wire type.
Result<int64_t> int_of(const WireField& field);
Result<float> float_of(const WireField& field);
Result<std::string> text_of(const WireField& field);
/// Appends the entries of a repeated field, one entry or several packed ones, to `values`. The new
/// entries take at most eight times the memory of the bytes that they were read from.
Status append_ints(const WireField& field, std::vector<int64_t>& values);
Status append_floats(const WireField& field, std::vector<float>& values);
Status append_doubles(const WireField& field, std::vector<double>& values);

}  // namespace trainyard
