#include "src/data/arrays/idx.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr unsigned kTypeU8 = 0x08;
constexpr unsigned kTypeI32 = 0x0C;
constexpr unsigned kTypeF32 = 0x0D;

struct IdxHeader {
  unsigned type = 0;
  Shape shape;
  int64_t bytes() const { return 4 + 4 * shape.rank(); }
};

uint32_t big_endian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string type_text(unsigned type) {
  static constexpr char kHex[] = "0123456789abcdef";
  return std::string("0x") + kHex[type >> 4 & 15] + kHex[type & 15];
}

Result<IdxHeader> read_header(ByteSource& source, const std::string& what) {
  char magic[4];
  ASSIGN_OR_RETURN(size_t n, read_full(source, magic));
  if (n < sizeof magic) return dataset_error(what, "the file ends within the IDX header");
  if (magic[0] != 0 || magic[1] != 0) {
    return dataset_error(what, "not an IDX file (it does not begin with two zero bytes)");
  }
  const size_t rank = static_cast<unsigned char>(magic[3]);
  if (rank < 1 || rank > 4) {
    return dataset_error(what, "rank " + std::to_string(rank) + ", expected 1 to 4");
  }
  char sizes[16];
  ASSIGN_OR_RETURN(n, read_full(source, std::span(sizes, 4 * rank)));
  if (n < 4 * rank) return dataset_error(what, "the file ends within the IDX header");
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) dims.push_back(big_endian(sizes + 4 * i));
  IdxHeader header{static_cast<unsigned char>(magic[2]), Shape(std::move(dims))};
  if (!header.shape.fits()) {
    return dataset_error(what, "sizes " + header.shape.to_string() + " are too large");
  }
  if (header.shape[0] > kRowsMax) {
    return dataset_error(what, "more than " + std::to_string(kRowsMax) + " rows");
  }
  if (header.shape[0] == 0) return dataset_error(what, "the file has no rows");
  return header;
}

/// Reads the elements that the header promises.
template <typename T>
Result<std::vector<T>> read_elements(ByteSource& source, const IdxHeader& header,
                                     const std::string& what, int64_t bytes_max) {
  const int64_t count = header.shape.elements();
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  const std::string promise =
      "the header promises " + header.shape.to_string() + ", " + std::to_string(bytes) + " bytes";
  if (bytes > bytes_max) {
    return dataset_error(what,
                         promise + ", at most " + std::to_string(bytes_max) + " are accepted");
  }
  std::vector<T> values;
  const auto grow = [&](int64_t size) {
    values.resize(static_cast<size_t>((size + int64_t{sizeof(T)} - 1) / int64_t{sizeof(T)}));
    return reinterpret_cast<char*>(values.data());
  };
  if (Status s = read_promised(source, {promise, bytes, header.bytes()}, what, grow); !s.ok()) {
    return std::move(s).error();
  }
  if constexpr (sizeof(T) == 4) {
    for (T& value : values) {
      uint32_t u;
      std::memcpy(&u, &value, sizeof u);
      if constexpr (std::endian::native == std::endian::little) u = __builtin_bswap32(u);
      std::memcpy(&value, &u, sizeof u);
    }
  }
  return values;
}

Status check_finite(const std::vector<float>& values, int64_t per_row, const std::string& what) {
  Problems problems;
  for (size_t i = 0; i < values.size() && !problems.full(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto index = static_cast<int64_t>(i);
    problems.add(what + ": row " + std::to_string(index / per_row + 1) + ", value " +
                     std::to_string(index % per_row + 1),
                 "not a finite number");
  }
  if (!problems.empty()) return problems.error();
  return {};
}

}  // namespace

Result<IdxImages> read_idx_images(ByteSource& source, const std::string& what, int64_t bytes_max) {
  ASSIGN_OR_RETURN(const IdxHeader header, read_header(source, what));
  const Shape& s = header.shape;
  if (s.rank() != 3 && s.rank() != 4) {
    return dataset_error(what, "rank " + std::to_string(s.rank()) +
                                   ", expected images of [N, H, W] or [N, C, H, W]");
  }
  IdxImages images;
  images.rows = s[0];
  images.image = s.rank() == 3 ? Shape{1, s[1], s[2]} : Shape{s[1], s[2], s[3]};
  const int64_t per_row = images.image.elements();
  if (per_row < 1 || per_row > kImageValuesMax) {
    return dataset_error(what, "images of " + images.image.to_string() + ", expected 1 to " +
                                   std::to_string(kImageValuesMax) + " values");
  }
  if (header.type == kTypeU8) {
    ASSIGN_OR_RETURN(images.u8, read_elements<uint8_t>(source, header, what, bytes_max));
    return images;
  }
  if (header.type != kTypeF32) {
    return dataset_error(what, "element type " + type_text(header.type) +
                                   ", expected 0x08 (bytes) or 0x0d (32-bit floats)");
  }
  images.dtype = DType::kF32;
  ASSIGN_OR_RETURN(images.f32, read_elements<float>(source, header, what, bytes_max));
  if (Status finite = check_finite(images.f32, per_row, what); !finite.ok()) {
    return std::move(finite).error();
  }
  return images;
}

Result<std::vector<int32_t>> read_idx_labels(ByteSource& source, const std::string& what) {
  ASSIGN_OR_RETURN(const IdxHeader header, read_header(source, what));
  if (header.shape.rank() != 1) {
    return dataset_error(
        what, "rank " + std::to_string(header.shape.rank()) + ", expected labels of [N]");
  }
  std::vector<int32_t> labels;
  if (header.type == kTypeU8) {
    ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                     read_elements<uint8_t>(source, header, what, INT64_MAX));
    labels.assign(bytes.begin(), bytes.end());
  } else if (header.type == kTypeI32) {
    ASSIGN_OR_RETURN(labels, read_elements<int32_t>(source, header, what, INT64_MAX));
  } else {
    return dataset_error(what, "element type " + type_text(header.type) +
                                   ", expected 0x08 (bytes) or 0x0c (32-bit integers)");
  }
  Problems problems;
  // All numbers up to the largest label become classes, so their count is limited.
  const int64_t end = std::min(kClassesMax, kUnnamedClassesMax + 8 * std::ssize(labels));
  for (size_t i = 0; i < labels.size() && !problems.full(); ++i) {
    if (labels[i] >= 0 && labels[i] < end) continue;
    problems.add(what + ": row " + std::to_string(i + 1), "label " + std::to_string(labels[i]) +
                                                              " is out of range, expected 0 to " +
                                                              std::to_string(end - 1));
  }
  if (!problems.empty()) return problems.error();
  return labels;
}

}  // namespace trainyard
