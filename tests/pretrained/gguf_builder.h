// tests/pretrained/gguf_builder.h: writes GGUF files for tests, right and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::testing {

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string gguf_text(std::string_view text) {
  return little_endian(uint64_t{text.size()}) + std::string(text);
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // as the file has them: the one of neighbors first
    uint32_t type = 0;
    std::string bytes;
    uint64_t offset = 0;  // in the data; set by finish() unless `placed`
    bool placed = false;
  };

  /// Adds a setting; `type` is the number of its type in the format, `value` its bytes.
  GgufBuilder& set(std::string_view key, uint32_t type, std::string_view value) {
    settings_ += gguf_text(key) + little_endian(type) + std::string(value);
    ++count_;
    return *this;
  }
  GgufBuilder& set_text(std::string_view key, std::string_view value) {
    return set(key, 8, gguf_text(value));
  }
  GgufBuilder& set_number(std::string_view key, uint32_t value) {
    return set(key, 4, little_endian(value));
  }
  GgufBuilder& set_real(std::string_view key, float value) {
    return set(key, 6, little_endian(value));
  }
  GgufBuilder& set_flag(std::string_view key, bool value) {
    return set(key, 7, std::string(1, value ? '\1' : '\0'));
  }
  GgufBuilder& set_texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = little_endian(uint32_t{8}) + little_endian(uint64_t{values.size()});
    for (const std::string& value : values) bytes += gguf_text(value);
    return set(key, 9, bytes);
  }
  GgufBuilder& set_numbers(std::string_view key, const std::vector<int32_t>& values) {
    std::string bytes = little_endian(uint32_t{5}) + little_endian(uint64_t{values.size()});
    for (const int32_t value : values) bytes += little_endian(value);
    return set(key, 9, bytes);
  }
  GgufBuilder& set_reals(std::string_view key, const std::vector<float>& values) {
    std::string bytes = little_endian(uint32_t{6}) + little_endian(uint64_t{values.size()});
    for (const float value : values) bytes += little_endian(value);
    return set(key, 9, bytes);
  }

  GgufBuilder& add(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  /// Adds a tensor in F32.
  GgufBuilder& add_f32(std::string_view name, std::vector<uint64_t> dims,
                       std::span<const float> numbers) {
    std::string bytes(numbers.size_bytes(), '\0');
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return add({std::string(name), std::move(dims), 0, std::move(bytes)});
  }
  std::vector<Tensor>& tensors() { return tensors_; }

  uint32_t version = 3;
  uint64_t alignment = 32;
  int64_t more_tensors = 0, more_settings = 0;  // added to the counts that the file names

  std::string finish() const {
    std::string head = "GGUF" + little_endian(version) +
                       little_endian(tensors_.size() + static_cast<uint64_t>(more_tensors)) +
                       little_endian(count_ + static_cast<uint64_t>(more_settings)) + settings_;
    std::string data;
    for (const Tensor& t : tensors_) {
      const uint64_t offset = t.placed ? t.offset : data.size();
      head += gguf_text(t.name) + little_endian(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t size : t.dims) head += little_endian(size);
      head += little_endian(t.type) + little_endian(offset);
      data += t.bytes;
      data.append((alignment - data.size() % alignment) % alignment, '\0');
    }
    head.append((alignment - head.size() % alignment) % alignment, '\0');
    return head + data;
  }

 private:
  std::string settings_;
  uint64_t count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace trainyard::testing
