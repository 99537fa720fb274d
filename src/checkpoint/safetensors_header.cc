#include "src/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "src/base/text.h"
#include "src/checkpoint/safetensors.h"

namespace trainyard {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr size_t kRankMax = 32;  // limits memory: untrusted JSON may list millions of dimensions

/// A state machine over the parser's JSON events, so that untrusted input never builds a JSON tree.
/// It accepts three levels, known keys and values of the expected type only.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::optional<Error> error;

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        if (key_ == kMetadataKey) {
          if (metadata_seen_) return refuse("duplicate_key", "'__metadata__' appears twice");
          metadata_seen_ = true;
          state_ = State::kMetadata;
          return true;
        }
        if (!names_.insert(key_).second) return refuse("duplicate_key", "appears twice");
        entry_ = Entry{};
        entry_.name = key_;
        state_ = State::kEntry;
        return true;
      default:
        return refuse("bad_info", "unexpected '{' in " + place());
    }
  }

  bool key(string_t& name) override {
    if (state_ == State::kTop) {
      key_ = name;
      tensor_ = name == kMetadataKey ? std::string() : name;
      return true;
    }
    if (state_ == State::kMetadata) {
      if (header.metadata.contains(name)) {
        return refuse("duplicate_key", "metadata key " + quoted_value(name) + " appears twice");
      }
      key_ = name;
      return true;
    }
    std::optional<Field> field;
    if (name == "dtype") field = Field::kDtype;
    if (name == "shape") field = Field::kShape;
    if (name == "data_offsets") field = Field::kOffsets;
    if (!field) {
      return refuse("bad_info", "unknown field " + quoted_value(name) +
                                    ", expected dtype, shape and data_offsets");
    }
    field_ = *field;
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if ((entry_.seen & bit) != 0) return refuse("duplicate_key", name + " appears twice");
    entry_.seen |= bit;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kEntry) {
      if (entry_.seen != 7u) {
        return refuse("bad_info", "dtype, shape and data_offsets are all required");
      }
      if (entry_.offsets.size() != 2) {
        return refuse("bad_offset", "data_offsets has " + std::to_string(entry_.offsets.size()) +
                                        " numbers, expected [begin, end]");
      }
      header.entries.push_back({std::move(entry_.name), std::move(entry_.dtype),
                                Shape(std::move(entry_.shape)), entry_.offsets[0],
                                entry_.offsets[1]});
    }
    state_ = state_ == State::kTop ? State::kStart : State::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::kEntry || field_ == Field::kDtype) {
      return refuse("bad_info", "unexpected '[' in " + place());
    }
    state_ = State::kArray;
    return true;
  }
  bool end_array() override {
    state_ = State::kEntry;
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header.metadata.emplace(std::move(key_), value);
      return true;
    }
    if (state_ != State::kEntry || field_ != Field::kDtype) {
      return refuse("bad_info", "unexpected text in " + place());
    }
    if (safetensors_dtype_bytes(value) == 0) {
      return refuse("dtype_unsupported",
                    "dtype " + quoted_value(value) +
                        " is not known, expected one such as F32, F64, F16, BF16, I64 or BOOL");
    }
    entry_.dtype = value;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kArray) return refuse("bad_info", "unexpected number in " + place());
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse("overflow", std::to_string(value) + " is too large");
    }
    if (field_ == Field::kOffsets) {
      if (entry_.offsets.size() == 2) {
        return refuse("bad_offset", "data_offsets has more than 2 numbers");
      }
      entry_.offsets.push_back(value);
      return true;
    }
    if (entry_.shape.size() == kRankMax) {
      return refuse("bad_info", "shape has more than " + std::to_string(kRankMax) + " dimensions");
    }
    entry_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t) override { return refuse_number(); }
  bool number_float(number_float_t, const string_t&) override { return refuse_number(); }
  bool null() override { return refuse("bad_info", "unexpected null in " + place()); }
  bool boolean(bool) override { return refuse("bad_info", "unexpected boolean in " + place()); }
  bool binary(binary_t&) override { return refuse("bad_info", "unexpected binary value"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // nlohmann reports bad UTF-8 inside strings as a parse error too; its text may quote raw bytes.
    const bool utf8 = std::string_view(e.what()).find("UTF-8") != std::string_view::npos;
    return refuse(utf8 ? "bad_utf8" : "bad_json", std::string(utf8 ? "bad UTF-8" : "bad JSON") +
                                                      " at byte " + std::to_string(position) +
                                                      " of the header");
  }

 private:
  enum class State : uint8_t { kStart, kTop, kMetadata, kEntry, kArray };
  enum class Field : uint8_t { kDtype, kShape, kOffsets };
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<uint64_t> offsets;
    unsigned seen = 0;
  };

  bool refuse(std::string rule, const std::string& message) {
    error = safetensors_error(std::move(rule), tensor_, message);
    return false;
  }
  bool refuse_number() {
    if (state_ == State::kArray) {
      return refuse(field_ == Field::kOffsets ? "bad_offset" : "bad_info",
                    "expected whole numbers of at least 0 in " + place());
    }
    return refuse("bad_info", "unexpected number in " + place());
  }
  std::string place() const {
    switch (state_) {
      case State::kMetadata:
        return "__metadata__, which maps text to text";
      case State::kEntry:
      case State::kArray:
        return field_ == Field::kDtype   ? "dtype"
               : field_ == Field::kShape ? "shape"
                                         : "data_offsets";
      default:
        return "the header, which maps names to tensors";
    }
  }

  State state_ = State::kStart;
  Field field_ = Field::kDtype;
  std::string key_;
  std::string tensor_;
  bool metadata_seen_ = false;
  Entry entry_;
  std::unordered_set<std::string> names_;
};

/// Checks that shape x dtype matches the range. Shape::fits() guarantees that eight bytes per
/// element do not overflow.
Status check_size(const SafetensorsEntry& e) {
  if (e.end < e.begin) {
    return safetensors_error("bad_offset", e.name,
                             "data_offsets end " + std::to_string(e.end) + " is before begin " +
                                 std::to_string(e.begin));
  }
  if (!e.shape.fits()) {
    return safetensors_error("overflow", e.name, "shape " + e.shape.to_string() + " is too large");
  }
  const uint64_t bytes =
      static_cast<uint64_t>(e.shape.elements()) * safetensors_dtype_bytes(e.dtype);
  if (bytes != e.end - e.begin) {
    return safetensors_error("bad_info", e.name,
                             "shape " + e.shape.to_string() + " of " + e.dtype + " needs " +
                                 std::to_string(bytes) + " bytes, data_offsets span " +
                                 std::to_string(e.end - e.begin));
  }
  return {};
}

Status check_cover(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  uint64_t position = 0;
  for (const size_t i : order) {
    const SafetensorsEntry& e = entries[i];
    if (e.begin != position) {
      return safetensors_error("bad_offset", e.name,
                               "begins at " + std::to_string(e.begin) + ", expected " +
                                   std::to_string(position) +
                                   (e.begin > position ? " (a hole)" : " (an overlap)"));
    }
    position = e.end;
  }
  if (position != data_bytes) {
    return safetensors_error("incomplete_buffer", "",
                             "the tensors end at byte " + std::to_string(position) +
                                 " of the data, the file has " + std::to_string(data_bytes));
  }
  return {};
}

}  // namespace

Error safetensors_error(std::string rule, std::string tensor, std::string message) {
  Error e = make_error(
      ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID",
      "safetensors: " + (tensor.empty() ? "" : "tensor " + quoted_value(tensor) + ": ") + message);
  e.metadata["rule"] = std::move(rule);
  if (!tensor.empty()) e.metadata["tensor"] = quoted_value(tensor);
  return e;
}

size_t safetensors_dtype_bytes(std::string_view dtype) {
  struct Row {
    std::string_view name;
    size_t bytes;
  };
  static constexpr std::array kRows = std::to_array<Row>({{"F32", 4},
                                                          {"F64", 8},
                                                          {"I32", 4},
                                                          {"I64", 8},
                                                          {"U8", 1},
                                                          {"BF16", 2},
                                                          {"F16", 2},
                                                          {"BOOL", 1},
                                                          {"I8", 1},
                                                          {"I16", 2},
                                                          {"U16", 2},
                                                          {"U32", 4},
                                                          {"U64", 8},
                                                          {"C64", 8},
                                                          {"F8_E4M3", 1},
                                                          {"F8_E5M2", 1}});
  const auto row = std::ranges::find(kRows, dtype, &Row::name);
  return row == kRows.end() ? 0 : row->bytes;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    return safetensors_error("bad_start", "", "the header does not begin with '{'");
  }
  const size_t last = json.find_last_not_of(' ');
  if (json[last] != '}') {
    return safetensors_error("bad_json", "", "the header does not end with '}' and spaces");
  }
  HeaderHandler handler;
  const bool ok = nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  if (handler.error) return *std::move(handler.error);
  TRAINYARD_CHECK(ok, "the JSON parser stopped without an error");
  for (const SafetensorsEntry& e : handler.header.entries) {
    if (Status s = check_size(e); !s.ok()) return std::move(s).error();
  }
  if (Status s = check_cover(handler.header.entries, data_bytes); !s.ok()) {
    return std::move(s).error();
  }
  return std::move(handler.header);
}

void pad_safetensors_header(std::string& json, int64_t alignment) {
  const auto beyond = static_cast<int64_t>(kSafetensorsLengthBytes + json.size()) % alignment;
  if (beyond > 0) json.append(static_cast<size_t>(alignment - beyond), ' ');
}

Result<SafetensorsParts> split_safetensors(std::span<const std::byte> file) {
  if (file.size() < kSafetensorsLengthBytes) {
    return safetensors_error("header_too_small", "",
                             "the file has " + std::to_string(file.size()) +
                                 " bytes, but the header length alone takes 8");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return safetensors_error("header_too_large", "",
                             "the header length is " + std::to_string(length) + ", at most " +
                                 std::to_string(kSafetensorsHeaderBytesMax) + " is accepted");
  }
  if (length > file.size() - kSafetensorsLengthBytes) {
    return safetensors_error(
        "bad_length", "",
        "the header length is " + std::to_string(length) + ", but the file has only " +
            std::to_string(file.size() - kSafetensorsLengthBytes) + " more bytes");
  }
  const std::span<const std::byte> json = file.subspan(kSafetensorsLengthBytes, length);
  SafetensorsParts parts;
  parts.data = file.subspan(kSafetensorsLengthBytes + length);
  ASSIGN_OR_RETURN(parts.header, parse_safetensors_header(
                                     {reinterpret_cast<const char*>(json.data()), json.size()},
                                     parts.data.size()));
  return parts;
}

}  // namespace trainyard
