#include "src/data/arrays/array_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "src/base/half.h"
#include "src/base/text.h"
#include "src/checkpoint/safetensors_header.h"
#include "src/data/files/file_tree.h"
#include "src/data/problems.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using Kind = ArrayType::Kind;
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kNpyEnding = ".npy";
constexpr size_t kNpyHeaderBytesMax = size_t{1} << 16;
constexpr char32_t kCodePointMax = 0x10ffff;

template <typename T>
T load(const uint8_t* p, bool swap) {
  uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, p, sizeof(T));
  if (swap) std::reverse(std::begin(bytes), std::end(bytes));
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

/// Calls visit(loader), where loader(p) returns the number whose bytes begin at p.
template <typename Visit>
auto with_loader(const ArrayType& type, Visit visit) {
  const bool swap = type.big_endian != (std::endian::native == std::endian::big);
  const auto of = [swap]<typename T>(T) {
    return [swap](const uint8_t* p) { return load<T>(p, swap); };
  };
  switch (type.kind) {
    case Kind::kBool:
      return visit([](const uint8_t* p) { return uint8_t{*p != 0}; });
    case Kind::kInteger:
      return type.bytes == 1   ? visit(of(int8_t{}))
             : type.bytes == 2 ? visit(of(int16_t{}))
             : type.bytes == 4 ? visit(of(int32_t{}))
                               : visit(of(int64_t{}));
    case Kind::kUnsigned:
      return type.bytes == 1   ? visit(of(uint8_t{}))
             : type.bytes == 2 ? visit(of(uint16_t{}))
             : type.bytes == 4 ? visit(of(uint32_t{}))
                               : visit(of(uint64_t{}));
    case Kind::kFloat:
      return type.bytes == 2
                 ? visit([swap](const uint8_t* p) { return from_f16(load<uint16_t>(p, swap)); })
             : type.bytes == 4 ? visit(of(float{}))
                               : visit(of(double{}));
    case Kind::kBfloat16:
      return visit([swap](const uint8_t* p) { return from_bf16(load<uint16_t>(p, swap)); });
    case Kind::kBytes:
    case Kind::kUnicode:
      break;
  }
  throw InvariantError("text does not contain numbers");
}

/// Calls visit(element, place) for each element in row-major order; `place` is its position in
/// memory.
template <typename Visit>
void visit_elements(const NpyHeader& header, Visit visit) {
  const int64_t count = header.shape.elements();
  const auto rank = static_cast<size_t>(header.shape.rank());
  if (!header.fortran_order || rank < 2) {
    for (int64_t i = 0; i < count; ++i) visit(i, i);
    return;
  }
  std::vector<int64_t> index(rank), stride(rank, 1);
  for (size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * header.shape.dims()[d - 1];
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(i, place);
    for (size_t d = rank; d-- > 0;) {
      place += stride[d];
      if (++index[d] < header.shape.dims()[d]) break;
      place -= stride[d] * header.shape.dims()[d];
      index[d] = 0;
    }
  }
}

template <typename T>
std::string number_text(T value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  TRAINYARD_CHECK(error == std::errc(), "a number cannot be formatted");
  return {text.data(), end};
}

/// The bytes of the tree's current file.
class TreeSource final : public ByteSource {
 public:
  explicit TreeSource(FileTree& tree) : tree_(tree) {}
  Result<size_t> read(std::span<char> out) override {
    piece_.clear();
    ASSIGN_OR_RETURN(const bool more, tree_.read(piece_, std::min(out.size(), kPieceBytes)));
    (void)more;  // not needed: the returned size is 0 at the end
    std::ranges::copy(piece_, out.begin());
    return piece_.size();
  }
  int64_t bytes_max() const override { return INT64_MAX; }
  bool compressed() const override { return true; }

 private:
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  FileTree& tree_;
  std::string piece_;
};

std::optional<ArrayType> safetensors_type(std::string_view dtype) {
  if (dtype == "BOOL") return ArrayType{Kind::kBool, 1};
  if (dtype == "BF16") return ArrayType{Kind::kBfloat16, 2};
  const auto bytes = static_cast<int64_t>(safetensors_dtype_bytes(dtype));
  const bool plain = dtype.find('_') == dtype.npos;  // false for types such as F8_E4M3
  if (plain && dtype.starts_with('I')) return ArrayType{Kind::kInteger, bytes};
  if (plain && dtype.starts_with('U')) return ArrayType{Kind::kUnsigned, bytes};
  if (plain && dtype.starts_with('F')) return ArrayType{Kind::kFloat, bytes};
  return std::nullopt;
}

}  // namespace

std::string index_text(const Shape& shape, int64_t element) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = element % shape.dims()[d];
    element /= shape.dims()[d];
  }
  return Shape(std::move(index)).to_string();
}

// --- a single array ----------------------------------------------------------------------------

std::span<const uint8_t> Array::bytes() const {
  return mapped_ == nullptr ? std::span<const uint8_t>(owned_) : part_;
}

std::vector<float> Array::to_floats() const {
  std::vector<float> values(static_cast<size_t>(shape().elements()));
  const uint8_t* first = bytes().data();
  with_loader(type(), [&](auto loader) {
    visit_elements(header_, [&](int64_t element, int64_t place) {
      values[static_cast<size_t>(element)] =
          static_cast<float>(loader(first + place * type().bytes));
    });
  });
  return values;
}

std::vector<uint8_t> Array::take_bytes() && {
  TRAINYARD_CHECK(type().u8(), "an array of bytes");
  const bool in_order = !header_.fortran_order || shape().rank() < 2;
  if (in_order && mapped_ == nullptr) return std::move(owned_);
  std::vector<uint8_t> values(static_cast<size_t>(shape().elements()));
  visit_elements(header_, [&](int64_t element, int64_t place) {
    values[static_cast<size_t>(element)] = bytes()[static_cast<size_t>(place)];
  });
  return values;
}

Result<std::string> Array::cell(int64_t row, const std::string& what) const {
  const uint8_t* p = bytes().data() + row * type().bytes;
  const auto refuse = [&](const std::string& why) {
    return dataset_error(what + ": " + index_text(shape(), row), why);
  };
  if (type().kind == Kind::kBool) return std::string(*p != 0 ? "true" : "false");
  if (type().kind == Kind::kBytes) {
    const std::string_view all(reinterpret_cast<const char*>(p), static_cast<size_t>(type().bytes));
    const std::string_view text = all.substr(0, all.find_last_not_of('\0') + 1);
    if (!is_utf8(text)) return refuse(quoted_value(text) + " is not UTF-8 text");
    return std::string(text);
  }
  if (type().kind == Kind::kUnicode) {
    const bool swap = type().big_endian != (std::endian::native == std::endian::big);
    std::string text;
    size_t end = 0;  // the text's length without trailing zeros
    for (int64_t i = 0; i < type().bytes; i += 4) {
      const char32_t c = load<uint32_t>(p + i, swap);
      if (c > kCodePointMax || (c >= 0xd800 && c <= 0xdfff)) {
        return refuse("a text with the number " + std::to_string(static_cast<uint32_t>(c)) +
                      ", which is not a character");
      }
      append_utf8(text, c);
      if (c != 0) end = text.size();
    }
    text.resize(end);
    return text;
  }
  return with_loader(type(), [&](auto loader) { return number_text(loader(p)); });
}

Result<Array> read_npy(ByteSource& source, const std::string& what) {
  const auto cut = [&] { return dataset_error(what, "the file ends within the NPY header"); };
  std::string start(kNpyMagic.size() + 2, '\0');
  ASSIGN_OR_RETURN(size_t n, read_full(source, start));
  if (!start.starts_with(kNpyMagic)) {
    return dataset_error(what, "not an NPY file (it does not begin with \\x93NUMPY)");
  }
  if (n < start.size()) return cut();
  const int major = static_cast<unsigned char>(start[kNpyMagic.size()]);
  const int minor = static_cast<unsigned char>(start[kNpyMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    return dataset_error(what, "NPY version " + std::to_string(major) + "." +
                                   std::to_string(minor) + ", expected 1.0, 2.0 or 3.0");
  }
  std::string length(major == 1 ? 2 : 4, '\0');
  ASSIGN_OR_RETURN(n, read_full(source, length));
  if (n < length.size()) return cut();
  size_t header_bytes = 0;
  for (size_t i = length.size(); i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(length[i]);
  }
  if (header_bytes > kNpyHeaderBytesMax) {
    return dataset_error(what, "an NPY header of " + std::to_string(header_bytes) +
                                   " bytes, expected at most " +
                                   std::to_string(kNpyHeaderBytesMax));
  }
  std::string text(header_bytes, '\0');
  ASSIGN_OR_RETURN(n, read_full(source, text));
  if (n < text.size()) return cut();
  Array array;
  ASSIGN_OR_RETURN(array.header_, parse_npy_header(text, what));
  const Shape& shape = array.shape();
  const int64_t bytes = shape.elements() * array.type().bytes;
  // The file's bytes, and 4 bytes for each element once it is converted.
  if (Status s = check_memory(bytes + 4 * shape.elements(), what); !s.ok()) {
    return std::move(s).error();
  }
  const PromisedBytes promise{
      "the header promises " + shape.to_string() + ", " + std::to_string(bytes) + " bytes", bytes,
      static_cast<int64_t>(start.size() + length.size() + text.size())};
  const auto grow = [&](int64_t size) {
    array.owned_.resize(static_cast<size_t>(size));
    return reinterpret_cast<char*>(array.owned_.data());
  };
  if (Status s = read_promised(source, promise, what, grow); !s.ok()) return std::move(s).error();
  return array;
}

// --- files with several arrays -----------------------------------------------------------------

std::string ArrayFile::place(const std::string& name) const {
  return what_ + ": array " + quoted_value(name);
}

Result<ArrayFile> ArrayFile::read(const std::filesystem::path& path, const std::string& what,
                                  std::span<const std::string> names) {
  ASSIGN_OR_RETURN(const RegularFile file, open_regular_file(path, what, "not a regular file"));
  char start[8] = {};
  const ssize_t n = ::pread(file.fd.get(), start, sizeof start, 0);
  const std::string_view magic(start, n > 0 ? static_cast<size_t>(n) : 0);
  ArrayFile arrays;
  arrays.what_ = what;
  if (magic.starts_with(kNpyMagic)) {
    return dataset_error(
        what,
        "an NPY file, which contains one array; give the inputs and the targets as separate files");
  }
  Status s = magic.starts_with("PK\x03\x04") || magic.starts_with("PK\x05\x06")
                 ? arrays.read_npz(path, names)
                 : arrays.read_safetensors(path, names);
  if (!s.ok()) return std::move(s).error();
  return arrays;
}

Result<Array> ArrayFile::take(const std::string& name) {
  const auto it = arrays_.find(name);
  if (it != arrays_.end()) return std::move(it->second);
  constexpr size_t kShownMax = 8;
  std::string shown;
  for (size_t i = 0; i < std::min(all_names_.size(), kShownMax); ++i) {
    shown += (i > 0 ? ", " : "") + quoted_value(all_names_[i]);
  }
  if (all_names_.size() > kShownMax) shown += ", ...";
  return dataset_error(what_, "has no array " + quoted_value(name) + "; " +
                                  (shown.empty() ? "it has none" : "it has " + shown));
}

Status ArrayFile::read_npz(const std::filesystem::path& path, std::span<const std::string> names) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileTree> tree, open_file_tree(path, what_));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, tree->next());
    if (!more) return {};
    std::string name = tree->path();
    if (!name.ends_with(kNpyEnding)) continue;
    name.resize(name.size() - kNpyEnding.size());
    all_names_.push_back(name);
    if (std::ranges::find(names, name) == names.end()) continue;
    if (has(name)) return dataset_error(place(name), "appears twice");
    TreeSource source(*tree);
    ASSIGN_OR_RETURN(arrays_[name], read_npy(source, place(name)));
  }
}

Status ArrayFile::read_safetensors(const std::filesystem::path& path,
                                   std::span<const std::string> names) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  Result<SafetensorsParts> parts = split_safetensors(file->bytes());
  if (!parts.ok()) {
    return dataset_error(what_, "neither NPZ nor safetensors (" + parts.error().message + ")");
  }
  for (SafetensorsEntry& e : parts->header.entries) {
    all_names_.push_back(e.name);
    if (std::ranges::find(names, e.name) == names.end()) continue;
    const std::optional<ArrayType> type = safetensors_type(e.dtype);
    if (!type) {
      return dataset_error(place(e.name), "elements of type " + e.dtype +
                                              ", expected booleans, whole numbers or floats of 16 "
                                              "to 64 bits");
    }
    Array array;
    array.header_ = {*type, false, std::move(e.shape)};
    array.mapped_ = file;
    const std::span<const std::byte> data = parts->data.subspan(e.begin, e.end - e.begin);
    array.part_ = {reinterpret_cast<const uint8_t*>(data.data()), data.size()};
    if (Status s = check_memory(4 * array.shape().elements(), place(e.name)); !s.ok()) return s;
    arrays_.emplace(e.name, std::move(array));
  }
  return {};
}

}  // namespace trainyard
