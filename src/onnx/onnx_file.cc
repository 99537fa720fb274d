#include "src/onnx/onnx_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "src/base/text.h"
#include "src/base/wire_reader.h"
#include "src/tensor/shape.h"

namespace trainyard::onnx {
namespace {

constexpr WireFormat kOnnxWire{"ONNX_INVALID", "not a valid ONNX file"};

namespace fs = std::filesystem;

struct ElementInfo {
  int64_t type;
  std::string_view name;
  size_t bytes;
};
constexpr std::array<ElementInfo, 14> kElements = {{{1, "float", 4},
                                                    {2, "uint8", 1},
                                                    {3, "int8", 1},
                                                    {4, "uint16", 2},
                                                    {5, "int16", 2},
                                                    {6, "int32", 4},
                                                    {7, "int64", 8},
                                                    {8, "string", 0},
                                                    {9, "bool", 1},
                                                    {10, "float16", 2},
                                                    {11, "double", 8},
                                                    {12, "uint32", 4},
                                                    {13, "uint64", 8},
                                                    {16, "bfloat16", 2}}};

const ElementInfo* find_element(int64_t type) {
  const auto it = std::ranges::find(kElements, type, &ElementInfo::type);
  return it == kElements.end() ? nullptr : &*it;
}

template <typename T>
Status store(Result<T> value, T& into) {
  if (!value.ok()) return std::move(value).error();
  into = std::move(value).value();
  return {};
}

template <typename T>
Status append(Result<T> value, std::vector<T>& list) {
  if (!value.ok()) return std::move(value).error();
  list.push_back(std::move(value).value());
  return {};
}

// The field numbers in the functions below are those of onnx.proto.

Result<std::pair<std::string, std::string>> read_entry(const WireField& field) {
  std::pair<std::string, std::string> entry;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store(text_of(f), entry.first);
    if (f.number == 2) return store(text_of(f), entry.second);
    return {};
  });
  if (!s.ok()) return std::move(s).error();
  return entry;
}

Result<TensorProto> read_tensor(const WireField& field) {
  TensorProto t;
  t.at = field.at;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    switch (f.number) {
      case 1:
        return append_ints(f, t.dims);
      case 2:
        return store(int_of(f), t.element_type);
      case 3:
        return invalid_file("byte " + std::to_string(f.at) +
                            ": a tensor in segments, expected a whole one");
      case 4:
        return append_floats(f, t.floats);
      case 5:   // int32_data
      case 7:   // int64_data
      case 11:  // uint64_data
        return append_ints(f, t.ints);
      case 8:
        return store(text_of(f), t.name);
      case 9:
        if (f.type != WireField::Type::kBytes) return text_of(f).error();
        t.raw = f.bytes;
        return {};
      case 10:
        return append_doubles(f, t.doubles);
      case 13: {
        ASSIGN_OR_RETURN(auto entry, read_entry(f));
        t.external.insert(std::move(entry));
        return {};
      }
      case 14: {
        ASSIGN_OR_RETURN(const int64_t location, int_of(f));
        t.is_external = location == 1;
        return {};
      }
      default:
        return {};
    }
  });
  if (!s.ok()) return std::move(s).error();
  return t;
}

Result<AttributeProto> read_attribute(const WireField& field) {
  AttributeProto a;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    switch (f.number) {
      case 1:
        return store(text_of(f), a.name);
      case 2: {
        ASSIGN_OR_RETURN(a.f, float_of(f));
        return {};
      }
      case 3:
        return store(int_of(f), a.i);
      case 4:
        return store(text_of(f), a.s);
      case 5: {
        ASSIGN_OR_RETURN(TensorProto tensor, read_tensor(f));
        a.tensor = std::make_shared<const TensorProto>(std::move(tensor));
        return {};
      }
      case 6:   // g
      case 11:  // graphs
        a.is_graph = true;
        return {};
      case 7:
        return append_floats(f, a.floats);
      case 8:
        return append_ints(f, a.ints);
      case 20:
        return store(int_of(f), a.type);
      default:
        return {};
    }
  });
  if (!s.ok()) return std::move(s).error();
  return a;
}

Result<NodeProto> read_node(const WireField& field) {
  NodeProto n;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    switch (f.number) {
      case 1:
        return append(text_of(f), n.inputs);
      case 2:
        return append(text_of(f), n.outputs);
      case 3:
        return store(text_of(f), n.name);
      case 4:
        return store(text_of(f), n.op);
      case 5:
        return append(read_attribute(f), n.attributes);
      case 7:
        return store(text_of(f), n.domain);
      default:
        return {};
    }
  });
  if (!s.ok()) return std::move(s).error();
  return n;
}

Result<DimensionProto> read_dimension(const WireField& field) {
  DimensionProto d;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store(int_of(f), d.size);
    if (f.number == 2) return store(text_of(f), d.name);
    return {};
  });
  if (!s.ok()) return std::move(s).error();
  return d;
}

// Reads a TypeProto.Tensor, which is nested in the TypeProto of a ValueInfoProto.
Status read_tensor_type(const WireField& field, ValueProto& v) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store(int_of(f), v.element_type);
    if (f.number != 2) return {};
    v.has_shape = true;
    return for_each_field(f, [&](const WireField& dim) -> Status {
      if (dim.number != 1) return {};
      return append(read_dimension(dim), v.dims);
    });
  });
}

Result<ValueProto> read_value(const WireField& field) {
  ValueProto v;
  Status s = for_each_field(field, [&](const WireField& f) -> Status {
    if (f.number == 1) return store(text_of(f), v.name);
    if (f.number == 4) {
      ASSIGN_OR_RETURN(auto entry, read_entry(f));
      v.metadata.insert(std::move(entry));
    }
    if (f.number != 2) return {};
    return for_each_field(f, [&](const WireField& type) -> Status {
      return type.number == 1 ? read_tensor_type(type, v) : Status();
    });
  });
  if (!s.ok()) return std::move(s).error();
  return v;
}

Status read_graph(const WireField& field, GraphProto& g) {
  return for_each_field(field, [&](const WireField& f) -> Status {
    switch (f.number) {
      case 1:
        if (g.nodes.size() == kNodesMax) {
          return invalid_file("more than " + std::to_string(kNodesMax) + " nodes");
        }
        return append(read_node(f), g.nodes);
      case 5:
        return append(read_tensor(f), g.initializers);
      case 11:
        return append(read_value(f), g.inputs);
      case 12:
        return append(read_value(f), g.outputs);
      case 13:
        return append(read_value(f), g.values);
      case 15:
        return invalid_file("byte " + std::to_string(f.at) +
                            ": a sparse initializer, expected dense ones");
      default:
        return {};
    }
  });
}

float from_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormal numbers are mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const uint32_t widened = exponent == 31 ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | widened << 23 | mantissa << 13);
}

float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <typename T>
T read_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

float raw_float(ElementType type, const std::byte* p) {
  switch (type) {
    case ElementType::kFloat16:
      return from_float16(read_as<uint16_t>(p));
    case ElementType::kBfloat16:
      return from_bfloat16(read_as<uint16_t>(p));
    case ElementType::kDouble:
      return static_cast<float>(read_as<double>(p));
    default:
      return read_as<float>(p);
  }
}

int64_t raw_int(ElementType type, const std::byte* p) {
  switch (type) {
    case ElementType::kUint8:
    case ElementType::kBool:
      return read_as<uint8_t>(p);
    case ElementType::kInt8:
      return read_as<int8_t>(p);
    case ElementType::kUint16:
      return read_as<uint16_t>(p);
    case ElementType::kInt16:
      return read_as<int16_t>(p);
    case ElementType::kInt32:
      return read_as<int32_t>(p);
    case ElementType::kUint32:
      return read_as<uint32_t>(p);
    default:
      return read_as<int64_t>(p);
  }
}

Result<int64_t> number_in(const TensorProto& t, const char* key) {
  const auto it = t.external.find(key);
  if (it == t.external.end()) return int64_t{-1};
  int64_t value = -1;
  const std::string& text = it->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return invalid_file("tensor " + quoted_value(t.name) + ": external " + key + " " +
                        quoted_value(text) + ", expected a whole number");
  }
  return value;
}

/// Returns the file that an external location names. It must be inside `folder`, also after links
/// have been resolved.
Result<fs::path> path_inside(const fs::path& folder, const std::string& location,
                             const std::string& tensor) {
  const auto refuse = [&](const std::string& why) {
    return invalid_file("tensor " + quoted_value(tensor) + ": external location " +
                        quoted_value(location) + " " + why);
  };
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute() ||
      std::ranges::any_of(relative, [](const fs::path& part) { return part == ".."; })) {
    return refuse("is not the name of a file inside the model's folder");
  }
  std::error_code error;
  const fs::path base = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
  if (error) return refuse("cannot be found: the model's folder is not readable");
  const fs::path found = fs::canonical(base / relative, error);
  if (error || !fs::is_regular_file(found, error)) return refuse("is not an existing file");
  const fs::path within = found.lexically_relative(base);
  if (within.empty() || *within.begin() == "..")
    return refuse("is a link that leads out of the model's folder");
  return found;
}

}  // namespace

Error invalid_file(const std::string& what) { return invalid_wire(kOnnxWire, what); }

std::string name_of(int64_t element_type) {
  const ElementInfo* info = find_element(element_type);
  return info != nullptr ? std::string(info->name) : "element type " + std::to_string(element_type);
}

bool is_float_type(int64_t type) { return type == 1 || type == 10 || type == 11 || type == 16; }

bool is_int_type(int64_t type) {
  return find_element(type) != nullptr && !is_float_type(type) && type != 8;
}

const AttributeProto* NodeProto::find(std::string_view attribute) const {
  const auto it = std::ranges::find(attributes, attribute, &AttributeProto::name);
  return it == attributes.end() ? nullptr : &*it;
}

std::string NodeProto::describe() const {
  const std::string& shown = !name.empty() || outputs.empty() ? name : outputs[0];
  const std::string quoted = quoted_value(shown);
  const std::string where = "node '" + quoted.substr(1, quoted.size() - 2) + "'";
  return op.empty() ? where : where + " (" + (domain.empty() ? op : domain + "." + op) + ")";
}

Result<OnnxFile> OnnxFile::open(const fs::path& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ASSIGN_OR_RETURN(OnnxFile onnx, parse(file.bytes(), path.parent_path()));
  onnx.file_ = std::move(file);
  return onnx;
}

Result<OnnxFile> OnnxFile::parse(std::span<const std::byte> bytes, const fs::path& folder) {
  OnnxFile onnx;
  onnx.folder_ = folder;
  bool has_graph = false;
  Status s = for_each_field(WireReader(kOnnxWire, bytes), [&](const WireField& f) -> Status {
    switch (f.number) {
      case 2:
        return store(text_of(f), onnx.producer_);
      case 7:
        if (has_graph) return invalid_file("byte " + std::to_string(f.at) + ": a second graph");
        has_graph = true;
        return read_graph(f, onnx.graph_);
      case 8: {
        std::string domain;
        int64_t version = 0;
        Status read = for_each_field(f, [&](const WireField& g) -> Status {
          if (g.number == 1) return store(text_of(g), domain);
          if (g.number == 2) return store(int_of(g), version);
          return {};
        });
        if (read.ok() && (domain.empty() || domain == "ai.onnx")) onnx.opset_ = version;
        return read;
      }
      case 14: {
        ASSIGN_OR_RETURN(auto entry, read_entry(f));
        onnx.metadata_.insert(std::move(entry));
        return {};
      }
      default:
        return {};
    }
  });
  if (!s.ok()) return std::move(s).error();
  if (!has_graph) return invalid_file("it has no graph");
  return onnx;
}

Result<std::span<const std::byte>> OnnxFile::external_bytes(const TensorProto& t) const {
  const auto location = t.external.find("location");
  const std::string name = location == t.external.end() ? "" : location->second;
  auto it = external_files_.find(name);
  if (it == external_files_.end()) {
    ASSIGN_OR_RETURN(const fs::path path, path_inside(folder_, name, t.name));
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    it = external_files_.emplace(name, std::move(file)).first;
  }
  const std::span<const std::byte> all = it->second.bytes();
  const auto size = static_cast<int64_t>(all.size());
  ASSIGN_OR_RETURN(int64_t offset, number_in(t, "offset"));
  ASSIGN_OR_RETURN(int64_t length, number_in(t, "length"));
  offset = std::max<int64_t>(offset, 0);
  if (offset <= size && length < 0) length = size - offset;
  if (offset > size || length > size - offset) {
    return invalid_file("tensor " + quoted_value(t.name) + ": bytes " + std::to_string(offset) +
                        " to " + std::to_string(offset) + " + " + std::to_string(length) + " of " +
                        quoted_value(name) + ", which has " + std::to_string(size));
  }
  return all.subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
}

Result<TensorValues> OnnxFile::decode_tensor(const TensorProto& t) const {
  const auto refuse = [&](const std::string& why) {
    return invalid_file("tensor " + quoted_value(t.name) + ", byte " + std::to_string(t.at) + ": " +
                        why);
  };
  const ElementInfo* info = find_element(t.element_type);
  if (info == nullptr || info->bytes == 0) {
    return refuse("has " + name_of(t.element_type) + ", expected numbers of 8 to 64 bits");
  }
  const Shape shape(t.dims);
  if (t.dims.size() > kRankMax || !shape.fits()) {
    return refuse("an impossible shape: " + shape.to_string());
  }
  const auto count = static_cast<size_t>(shape.elements());
  const auto type = static_cast<ElementType>(t.element_type);
  TensorValues values;
  values.dims = t.dims;
  values.is_float = is_float_type(t.element_type);

  std::span<const std::byte> raw = t.raw;
  if (t.is_external) {
    ASSIGN_OR_RETURN(raw, external_bytes(t));
  }
  const size_t typed = t.floats.size() + t.doubles.size() + t.ints.size();
  if (t.is_external || !raw.empty() || typed == 0) {
    if (raw.size() != count * info->bytes) {
      return refuse("has " + std::to_string(raw.size()) + " bytes of data, expected " +
                    std::to_string(count * info->bytes) + " for " + shape.to_string() + " of " +
                    std::string(info->name));
    }
    for (size_t i = 0; i < count; ++i) {
      const std::byte* p = raw.data() + i * info->bytes;
      if (values.is_float) {
        values.floats.push_back(raw_float(type, p));
      } else {
        values.ints.push_back(raw_int(type, p));
      }
    }
    return values;
  }
  // Half-precision numbers are stored as bits in int32_data.
  const bool as_bits = type == ElementType::kFloat16 || type == ElementType::kBfloat16;
  const size_t found = type == ElementType::kFloat    ? t.floats.size()
                       : type == ElementType::kDouble ? t.doubles.size()
                                                      : t.ints.size();
  if (found != count || found != typed) {
    return refuse("has " + std::to_string(found) + " values of " + std::string(info->name) +
                  " and " + std::to_string(typed - found) + " others, expected " +
                  std::to_string(count) + " for " + shape.to_string());
  }
  if (type == ElementType::kFloat) values.floats = t.floats;
  if (type == ElementType::kDouble) values.floats.assign(t.doubles.begin(), t.doubles.end());
  for (size_t i = 0; as_bits && i < count; ++i) {
    const auto bits = static_cast<uint16_t>(t.ints[i]);
    values.floats.push_back(type == ElementType::kFloat16 ? from_float16(bits)
                                                          : from_bfloat16(bits));
  }
  if (!values.is_float) values.ints = t.ints;
  return values;
}

}  // namespace trainyard::onnx
