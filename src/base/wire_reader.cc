#include "src/base/wire_reader.h"

#include <bit>
#include <cstring>

namespace trainyard {
namespace {

using Type = WireField::Type;

Error wrong_type(const WireField& field, const char* expected) {
  return invalid_wire(*field.format, "byte " + std::to_string(field.at) + ": field " +
                                         std::to_string(field.number) + " has wire type " +
                                         std::to_string(static_cast<int>(field.type)) +
                                         ", expected " + expected);
}

template <typename Bits>
Bits little_endian(std::span<const std::byte> bytes) {
  Bits bits = 0;
  for (size_t i = 0; i < sizeof bits; ++i) bits |= static_cast<Bits>(bytes[i]) << (8 * i);
  return bits;
}

template <typename T, typename Bits>
Status append_fixed(const WireField& field, Type one, std::vector<T>& values) {
  if (field.type == one) {
    values.push_back(std::bit_cast<T>(static_cast<Bits>(field.bits)));
    return {};
  }
  if (field.type != Type::kBytes || field.bytes.size() % sizeof(T) != 0) {
    return wrong_type(field, "numbers");
  }
  const size_t count = field.bytes.size() / sizeof(T), before = values.size();
  values.resize(before + count);
  for (size_t i = 0; i < count; ++i) {
    values[before + i] =
        std::bit_cast<T>(little_endian<Bits>(field.bytes.subspan(i * sizeof(T), sizeof(T))));
  }
  return {};
}

}  // namespace

Error invalid_wire(const WireFormat& format, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, format.reason,
                    std::string(format.refusal) + ": " + what);
}

Result<WireReader> WireReader::of(const WireField& field) {
  if (field.type != Type::kBytes) return wrong_type(field, "a message");
  return WireReader(*field.format, field.bytes, field.at);
}

Error WireReader::broken(const std::string& what) const {
  return invalid_wire(*format_, "byte " + std::to_string(at_ + position_) + ": " + what);
}

Result<uint64_t> WireReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (done()) return broken("the file ends inside a number");
    const auto byte = static_cast<uint64_t>(bytes_[position_++]);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return broken("a number of more than 64 bits");
}

Result<WireField> WireReader::next() {
  WireField field;
  field.format = format_;
  ASSIGN_OR_RETURN(const uint64_t tag, varint());
  if (tag >> 3 == 0 || tag >> 3 > (uint64_t{1} << 29) - 1)
    return broken("the field number is out of range");
  field.number = static_cast<int>(tag >> 3);
  field.type = static_cast<Type>(tag & 7);
  field.at = at_ + position_;
  uint64_t size = 0;
  switch (field.type) {
    case Type::kVarint: {
      ASSIGN_OR_RETURN(field.bits, varint());
      return field;
    }
    case Type::kFixed64:
      size = 8;
      break;
    case Type::kFixed32:
      size = 4;
      break;
    case Type::kBytes: {
      ASSIGN_OR_RETURN(size, varint());
      field.at = at_ + position_;
      break;
    }
    default:
      return broken("wire type " + std::to_string(tag & 7) + " is not known");
  }
  if (size > bytes_.size() - position_) {
    return broken("field " + std::to_string(field.number) + " has " + std::to_string(size) +
                  " bytes, but " + std::to_string(bytes_.size() - position_) + " are left");
  }
  field.bytes = bytes_.subspan(position_, static_cast<size_t>(size));
  position_ += static_cast<size_t>(size);
  if (field.type == Type::kFixed32) field.bits = little_endian<uint32_t>(field.bytes);
  if (field.type == Type::kFixed64) field.bits = little_endian<uint64_t>(field.bytes);
  return field;
}

Result<int64_t> int_of(const WireField& field) {
  if (field.type != Type::kVarint) return wrong_type(field, "a whole number");
  return static_cast<int64_t>(field.bits);
}

Result<float> float_of(const WireField& field) {
  if (field.type != Type::kFixed32) return wrong_type(field, "a number");
  return std::bit_cast<float>(static_cast<uint32_t>(field.bits));
}

Result<std::string> text_of(const WireField& field) {
  if (field.type != Type::kBytes) return wrong_type(field, "text");
  return std::string(field.text());
}

Status append_ints(const WireField& field, std::vector<int64_t>& values) {
  if (field.type == Type::kVarint) {
    values.push_back(static_cast<int64_t>(field.bits));
    return {};
  }
  if (field.type != Type::kBytes) return wrong_type(field, "whole numbers");
  // Packed numbers have no tags between them. The last byte of a number has its top bit clear.
  uint64_t value = 0;
  int shift = 0;
  for (const std::byte byte : field.bytes) {
    if (shift > 63) return wrong_type(field, "whole numbers of at most 64 bits");
    value |= (static_cast<uint64_t>(byte) & 0x7f) << shift;
    shift += 7;
    if (static_cast<uint8_t>(byte) >= 0x80) continue;
    values.push_back(static_cast<int64_t>(value));
    value = 0;
    shift = 0;
  }
  if (shift != 0) return wrong_type(field, "whole numbers; the last one is incomplete");
  return {};
}

Status append_floats(const WireField& field, std::vector<float>& values) {
  return append_fixed<float, uint32_t>(field, Type::kFixed32, values);
}

Status append_doubles(const WireField& field, std::vector<double>& values) {
  return append_fixed<double, uint64_t>(field, Type::kFixed64, values);
}

}  // namespace trainyard
