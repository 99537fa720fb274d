// src/onnx/onnx_file.h: reads an ONNX file: nodes, initializers, inputs and outputs, each checked
// separately. import_model.h interprets them.
//
// Limits: kNodesMax nodes, kRankMax dimensions. Tensor data stays in the mapped file until
// decode_tensor() is called.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/files.h"
#include "src/base/result.h"

namespace trainyard::onnx {

inline constexpr size_t kNodesMax = 100'000;
inline constexpr size_t kRankMax = 8;

/// Returns INVALID_ARGUMENT/ONNX_INVALID for a broken file. `what` says where and how.
Error invalid_file(const std::string& what);

/// The values of TensorProto.DataType.
enum class ElementType : uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};
std::string name_of(int64_t element_type);  // "float16"; "element type 99"
bool is_float_type(int64_t element_type);
bool is_int_type(int64_t element_type);  // includes bool

/// A TensorProto. Its values are in one of the fields, or in another file.
struct TensorProto {
  std::string name;
  std::vector<int64_t> dims;
  int64_t element_type = 0;
  std::span<const std::byte> raw;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> ints;  // int32_data, int64_data or uint64_data
  bool is_external = false;
  std::map<std::string, std::string> external;  // location, offset, length
  size_t at = 0;                                // byte offset in the file
};

/// The values of a tensor: `floats` if it has a floating-point type, else `ints`.
struct TensorValues {
  std::vector<int64_t> dims;
  bool is_float = true;
  std::vector<float> floats;
  std::vector<int64_t> ints;
};

struct AttributeProto {
  std::string name;
  int64_t type = 0;
  double f = 0;
  int64_t i = 0;
  std::string s;
  std::shared_ptr<const TensorProto> tensor;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  bool is_graph = false;  // has a graph as its value, as in If and Loop
};

struct NodeProto {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> attributes;

  const AttributeProto* find(std::string_view attribute) const;
  /// Returns text such as "Conv 'conv1'"; a node without a name is described by its first output.
  std::string describe() const;
};

/// A dimension: its size, or, if it is open, its name or neither.
struct DimensionProto {
  int64_t size = -1;
  std::string name;
};

struct ValueProto {
  std::string name;
  int64_t element_type = 0;
  bool has_shape = false;
  std::vector<DimensionProto> dims;
  std::map<std::string, std::string> metadata;
};

struct GraphProto {
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueProto> inputs, outputs;
  std::vector<ValueProto> values;  // what the file says about other values
};

class OnnxFile {
 public:
  /// Error: NOT_FOUND/FILE_NOT_FOUND, or ONNX_INVALID with the problem and its place.
  static Result<OnnxFile> open(const std::filesystem::path& path);
  /// Keeps a reference to `bytes`. Files with external data must be in `folder`.
  static Result<OnnxFile> parse(std::span<const std::byte> bytes,
                                const std::filesystem::path& folder = {});

  const GraphProto& graph() const { return graph_; }
  int64_t opset() const { return opset_; }  // the opset of the default domain
  const std::string& producer() const { return producer_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Checks that a tensor's type, shape and data are consistent, before it allocates memory for the
  /// values.
  Result<TensorValues> decode_tensor(const TensorProto& tensor) const;

 private:
  Result<std::span<const std::byte>> external_bytes(const TensorProto& tensor) const;

  MappedFile file_;
  std::filesystem::path folder_;
  GraphProto graph_;
  int64_t opset_ = 0;
  std::string producer_;
  std::map<std::string, std::string> metadata_;
  /// External files that are open, by location.
  mutable std::map<std::string, MappedFile> external_files_;
};

}  // namespace trainyard::onnx
