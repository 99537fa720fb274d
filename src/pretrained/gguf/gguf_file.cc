#include "src/pretrained/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <fstream>
#include <limits>

#include "src/base/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kKeyBytesMax = 65535, kNameBytesMax = 1024;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kAlignmentDefault = 32, kAlignmentMax = 1 << 20;
constexpr const char* kAlignmentKey = "general.alignment";
/// The fewest bytes of a setting (key, type, value) and of a tensor's description.
constexpr uint64_t kSettingBytesMin = 8 + 4 + 1, kTensorBytesMin = 8 + 4 + 8 + 4 + 8;

/// Returns the bytes of a number; 0 for texts and arrays.
size_t bytes_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kText:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

/// Reads one field after the other. `what` names the field in messages.
class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return gguf_error(what, "needs " + std::to_string(count) + " bytes at offset " +
                                  std::to_string(at_) + ", but the file has " +
                                  std::to_string(left()) + " left: it is truncated or damaged");
    }
    const auto taken = bytes_.subspan(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return taken;
  }

  template <std::unsigned_integral T>
  Result<T> number(std::string_view what) {
    ASSIGN_OR_RETURN(const auto bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> text(std::string_view what, uint64_t bytes_max) {
    ASSIGN_OR_RETURN(const auto size, number<uint64_t>(what));
    if (size > bytes_max) {
      return gguf_error(what, "has " + std::to_string(size) + " bytes, expected at most " +
                                  std::to_string(bytes_max));
    }
    return take(size, what);
  }

  /// Reads a count of things that have at least `bytes_min` bytes each.
  Result<uint64_t> count(std::string_view what, uint64_t bytes_min, uint64_t max) {
    ASSIGN_OR_RETURN(const auto count, number<uint64_t>(what));
    if (count > max) {
      return gguf_error(
          what, "is " + std::to_string(count) + ", expected at most " + std::to_string(max));
    }
    return count <= left() / bytes_min
               ? Result<uint64_t>(count)
               : gguf_error(what, "is " + std::to_string(count) +
                                      ", for which the rest of the file, " +
                                      std::to_string(left()) + " bytes, is too short");
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

std::string_view chars_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<GgufType> read_type(GgufCursor& cursor, const std::string& what) {
  ASSIGN_OR_RETURN(const auto type, cursor.number<uint32_t>(what));
  if (type <= static_cast<uint32_t>(GgufType::kF64)) return static_cast<GgufType>(type);
  return gguf_error(what, "has the type " + std::to_string(type) + ", expected 0 to 12");
}

/// Moves over the elements of an array.
Status skip_elements(GgufCursor& cursor, const GgufValue& array, const std::string& what) {
  if (array.element == GgufType::kArray) {
    return gguf_error(what, "is an array of arrays, which is not supported");
  }
  if (const size_t bytes = bytes_of(array.element); bytes > 0) {
    ASSIGN_OR_RETURN([[maybe_unused]] const auto all, cursor.take(array.count * bytes, what));
    return {};
  }
  for (uint64_t i = 0; i < array.count; ++i) {
    ASSIGN_OR_RETURN([[maybe_unused]] const auto text, cursor.text(what, cursor.left()));
  }
  return {};
}

Result<GgufValue> read_array(GgufCursor& cursor, std::span<const std::byte> file,
                             const std::string& what) {
  GgufValue value;
  value.type = GgufType::kArray;
  ASSIGN_OR_RETURN(value.element, read_type(cursor, what + ": its elements"));
  const size_t bytes = bytes_of(value.element);
  ASSIGN_OR_RETURN(value.count,
                   cursor.count(what + ": its length", bytes > 0 ? bytes : sizeof(uint64_t),
                                std::numeric_limits<uint64_t>::max()));
  const size_t begin = cursor.at();
  if (Status s = skip_elements(cursor, value, what); !s.ok()) return std::move(s).error();
  value.bytes = file.subspan(begin, cursor.at() - begin);
  return value;
}

Result<GgufValue> read_value(GgufCursor& cursor, std::span<const std::byte> file,
                             const std::string& what) {
  ASSIGN_OR_RETURN(const GgufType type, read_type(cursor, what));
  if (type == GgufType::kArray) return read_array(cursor, file, what);
  GgufValue value;
  value.type = type;
  if (type == GgufType::kText) {
    ASSIGN_OR_RETURN(value.bytes, cursor.text(what, cursor.left()));
  } else {
    ASSIGN_OR_RETURN(value.bytes, cursor.take(bytes_of(type), what));
  }
  return value;
}

Result<uint32_t> read_version(GgufCursor& cursor) {
  ASSIGN_OR_RETURN(const auto magic, cursor.take(kMagic.size(), "the first bytes"));
  if (chars_of(magic) != kMagic) {
    return gguf_error("the first bytes",
                      "are " + quoted_value(chars_of(magic)) + ", expected 'GGUF'");
  }
  ASSIGN_OR_RETURN(const auto version, cursor.number<uint32_t>("version"));
  if (version == 2 || version == 3) return version;
  if ((version & 0xffff) == 0 && version != 0) {
    return gguf_error("version", "the file is big endian, expected a little-endian one");
  }
  return gguf_error("version", "is " + std::to_string(version) + ", expected 2 or 3");
}

/// A tensor as the file describes it.
struct TensorRecord {
  GgufTensor tensor;
  uint64_t offset = 0;  // in the data

  uint64_t end() const { return offset + static_cast<uint64_t>(size()); }
  int64_t size() const { return tensor.shape.elements() / tensor.type->block * tensor.type->bytes; }
};

Result<Shape> read_shape(GgufCursor& cursor, const std::string& what) {
  ASSIGN_OR_RETURN(const auto rank, cursor.number<uint32_t>(what));
  if (rank < 1 || rank > kDimensionsMax) {
    return gguf_error(what, "has " + std::to_string(rank) + " dimensions, expected 1 to 4");
  }
  std::vector<int64_t> dims;
  for (uint32_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const auto size, cursor.number<uint64_t>(what));
    if (size < 1 || size > static_cast<uint64_t>(Shape::kElementsMax)) {
      return gguf_error(
          what, "has a dimension of " + std::to_string(size) + ", expected a number from 1 on");
    }
    dims.push_back(static_cast<int64_t>(size));
  }
  std::ranges::reverse(dims);
  Shape shape(std::move(dims));
  if (!shape.fits()) return gguf_error(what, "has too many numbers");
  return shape;
}

Result<TensorRecord> read_tensor(GgufCursor& cursor, uint64_t index) {
  TensorRecord record;
  ASSIGN_OR_RETURN(const auto name,
                   cursor.text("the name of tensor " + std::to_string(index), kNameBytesMax));
  record.tensor.name = chars_of(name);
  const std::string what = "tensor " + quoted_value(record.tensor.name);
  ASSIGN_OR_RETURN(record.tensor.shape, read_shape(cursor, what));
  ASSIGN_OR_RETURN(const auto type, cursor.number<uint32_t>(what));
  ASSIGN_OR_RETURN(record.offset, cursor.number<uint64_t>(what));
  record.tensor.type = find_ggml_type(type);
  if (record.tensor.type == nullptr) {
    return make_error(
        ErrorCode::kInvalidArgument, "MODEL_UNSUPPORTED",
        what + ": has the type " + ggml_type_name(type) + ", expected " + readable_ggml_types());
  }
  if (record.tensor.row_length() % record.tensor.type->block != 0) {
    return gguf_error(what, "has rows of " + std::to_string(record.tensor.row_length()) +
                                " numbers, expected a multiple of " +
                                std::to_string(record.tensor.type->block) + " for " +
                                std::string(record.tensor.type->name));
  }
  return record;
}

/// Gives each tensor its bytes. Checks that all are in the data and none overlap.
Status place_tensors(std::vector<TensorRecord>& records, std::span<const std::byte> data,
                     uint64_t alignment) {
  std::vector<const TensorRecord*> by_offset;
  for (TensorRecord& record : records) {
    const std::string what = "tensor " + quoted_value(record.tensor.name);
    const auto size = static_cast<uint64_t>(record.size());
    if (record.offset % alignment != 0) {
      return gguf_error(what, "has the offset " + std::to_string(record.offset) +
                                  ", expected a multiple of " + std::to_string(alignment) + " (" +
                                  kAlignmentKey + ")");
    }
    if (record.offset > data.size() || size > data.size() - record.offset) {
      return gguf_error(what, "has " + std::to_string(size) + " bytes at the offset " +
                                  std::to_string(record.offset) + " of the data, which has " +
                                  std::to_string(data.size()) +
                                  " bytes: the file is truncated or damaged");
    }
    record.tensor.bytes = data.subspan(record.offset, size);
    by_offset.push_back(&record);
  }
  std::ranges::sort(by_offset, {}, &TensorRecord::offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    if (by_offset[i]->offset >= by_offset[i - 1]->end()) continue;
    return gguf_error("tensor " + quoted_value(by_offset[i]->tensor.name),
                      "overlaps the tensor " + quoted_value(by_offset[i - 1]->tensor.name));
  }
  return {};
}

/// Calls with_number(value) with the number in its own type; false if the value is no number.
template <typename WithNumber>
bool visit_number(const GgufValue& value, WithNumber with_number) {
  const auto call = [&]<typename T>(T number) {
    std::memcpy(&number, value.bytes.data(), sizeof(T));
    with_number(number);
    return true;
  };
  switch (value.type) {
    case GgufType::kU8:
      return call(uint8_t{});
    case GgufType::kI8:
      return call(int8_t{});
    case GgufType::kU16:
      return call(uint16_t{});
    case GgufType::kI16:
      return call(int16_t{});
    case GgufType::kU32:
      return call(uint32_t{});
    case GgufType::kI32:
      return call(int32_t{});
    case GgufType::kF32:
      return call(float{});
    case GgufType::kU64:
      return call(uint64_t{});
    case GgufType::kI64:
      return call(int64_t{});
    case GgufType::kF64:
      return call(double{});
    case GgufType::kBool:
    case GgufType::kText:
    case GgufType::kArray:
      return false;
  }
  return false;
}

Result<uint64_t> read_alignment(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, file.index(kAlignmentKey, kAlignmentMax));
  const auto alignment = static_cast<uint64_t>(given.value_or(kAlignmentDefault));
  if (std::has_single_bit(alignment)) return alignment;
  return gguf_error(kAlignmentKey, "is " + std::to_string(alignment) + ", expected a power of 2");
}

}  // namespace

Error gguf_error(std::string_view field, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
                    std::string(field) + ": " + what);
}

std::optional<int64_t> GgufValue::integer() const {
  std::optional<int64_t> result;
  visit_number(*this, [&]<typename T>(T number) {
    if constexpr (std::integral<T>) {
      if (std::in_range<int64_t>(number)) result = static_cast<int64_t>(number);
    }
  });
  return result;
}

std::optional<double> GgufValue::real() const {
  std::optional<double> result;
  visit_number(*this, [&](auto number) { result = static_cast<double>(number); });
  return result;
}

std::optional<bool> GgufValue::flag() const {
  if (type != GgufType::kBool) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::text() const {
  if (type != GgufType::kText) return std::nullopt;
  return chars_of(bytes);
}

std::vector<GgufValue> GgufValue::elements() const {
  std::vector<GgufValue> values;
  if (type != GgufType::kArray) return values;
  values.reserve(static_cast<size_t>(count));
  GgufCursor cursor(bytes);
  for (uint64_t i = 0; i < count; ++i) {
    // Both have been checked when the file was read.
    auto content = element == GgufType::kText ? cursor.text("an element", cursor.left())
                                              : cursor.take(bytes_of(element), "an element");
    values.push_back({element, GgufType::kU8, 0, std::move(content).value()});
  }
  return values;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  GgufCursor cursor(bytes);
  ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t version, read_version(cursor));
  ASSIGN_OR_RETURN(const uint64_t tensors,
                   cursor.count("the number of tensors", kTensorBytesMin, kTensorsMax));
  ASSIGN_OR_RETURN(const uint64_t settings,
                   cursor.count("the number of settings", kSettingBytesMin, kSettingsMax));
  GgufFile file;
  for (uint64_t i = 0; i < settings; ++i) {
    ASSIGN_OR_RETURN(const auto key,
                     cursor.text("the key of setting " + std::to_string(i), kKeyBytesMax));
    std::string name(chars_of(key));
    const bool is_plain = is_utf8(name);
    ASSIGN_OR_RETURN(GgufValue value,
                     read_value(cursor, bytes, is_plain ? name : quoted_value(name)));
    if (!is_plain) return gguf_error(quoted_value(name), "is not UTF-8");
    if (!file.settings_.emplace(name, value).second) return gguf_error(name, "is there twice");
  }
  std::vector<TensorRecord> records;
  for (uint64_t i = 0; i < tensors; ++i) {
    ASSIGN_OR_RETURN(TensorRecord record, read_tensor(cursor, i));
    records.push_back(std::move(record));
  }
  ASSIGN_OR_RETURN(const uint64_t alignment, read_alignment(file));
  const uint64_t begin =
      std::min<uint64_t>((cursor.at() + alignment - 1) / alignment * alignment, bytes.size());
  if (Status s = place_tensors(records, bytes.subspan(begin), alignment); !s.ok()) {
    return std::move(s).error();
  }
  for (TensorRecord& record : records) {
    if (!file.by_name_.emplace(record.tensor.name, file.tensors_.size()).second) {
      return gguf_error("tensor " + quoted_value(record.tensor.name), "is there twice");
    }
    file.tensors_.push_back(std::move(record.tensor));
  }
  return file;
}

Result<GgufFile> GgufFile::open(const fs::path& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  ASSIGN_OR_RETURN(GgufFile file, parse(mapped.bytes()));
  file.mapped_ = std::move(mapped);
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = settings_.find(key);
  return it == settings_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<std::optional<std::string>> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  const auto text = value->text();
  if (!text || !is_utf8(*text)) return gguf_error(key, "expected a text in UTF-8");
  return std::optional<std::string>(*text);
}

Result<std::optional<bool>> GgufFile::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto flag = value->flag()) return flag;
  return gguf_error(key, "expected true or false");
}

Result<std::optional<int64_t>> GgufFile::index(std::string_view key, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto number = value->integer();
  if (number && *number >= 0 && *number <= max) return number;
  return gguf_error(key, "expected a whole number from 0 to " + std::to_string(max));
}

bool is_gguf_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::array<char, kMagic.size()> first{};
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), first.size());
  return file.gcount() == std::ssize(first) && std::string_view(first.data(), 4) == kMagic;
}

}  // namespace trainyard
