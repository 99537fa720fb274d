#include "src/onnx/graph_writer.h"

#include <bit>
#include <charconv>
#include <numeric>

#include "src/base/check.h"

namespace trainyard::onnx {

static_assert(std::endian::native == std::endian::little, "tensors are written as they are");

namespace {

// Field numbers of the messages of onnx.proto.
namespace node_field {
constexpr int kInput = 1, kOutput = 2, kName = 3, kOpType = 4, kAttribute = 5, kDomain = 7;
}
namespace attribute_field {
constexpr int kName = 1, kFloat = 2, kInt = 3, kText = 4, kInts = 8, kTexts = 9, kType = 20;
constexpr int64_t kTypeFloat = 1, kTypeInt = 2, kTypeText = 3, kTypeInts = 7, kTypeTexts = 8;
}  // namespace attribute_field
namespace tensor_field {
constexpr int kDims = 1, kDataType = 2, kName = 8, kRawData = 9;
}
namespace value_field {
constexpr int kName = 1, kType = 2, kDescription = 3;
constexpr int kTensorType = 1;                   // TypeProto
constexpr int kElementType = 1, kShape = 2;      // TypeProto.Tensor
constexpr int kDim = 1;                          // TensorShapeProto
constexpr int kDimValue = 1, kDimParameter = 2;  // TensorShapeProto.Dimension
}  // namespace value_field
namespace graph_field {
constexpr int kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}

ProtobufMessage attribute_message(const std::string& name, const Attribute& value) {
  using namespace attribute_field;
  ProtobufMessage m;
  m.add_text(kName, name);
  if (const auto* f = std::get_if<double>(&value)) {
    m.add_float(kFloat, static_cast<float>(*f));
    m.add_int(kType, kTypeFloat);
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    m.add_int(kInt, *i);
    m.add_int(kType, kTypeInt);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    m.add_text(kText, *s);
    m.add_int(kType, kTypeText);
  } else {
    for (const int64_t x : std::get<std::vector<int64_t>>(value)) m.add_int(kInts, x);
    m.add_int(kType, kTypeInts);
  }
  return m;
}

ProtobufMessage texts_message(const std::string& name, const std::vector<std::string>& texts) {
  using namespace attribute_field;
  ProtobufMessage m;
  m.add_text(kName, name);
  for (const std::string& text : texts) m.add_text(kTexts, text);
  m.add_int(kType, kTypeTexts);
  return m;
}

ProtobufMessage tensor_header(const std::string& name, const TensorType& type) {
  ProtobufMessage m;
  for (const int64_t d : type.shape.dims()) m.add_int(tensor_field::kDims, d);
  m.add_int(tensor_field::kDataType, data_type_of(type.dtype));
  m.add_text(tensor_field::kName, name);
  return m;
}

ProtobufMessage value_message(const std::string& name, int64_t data_type,
                              const std::vector<int64_t>& dims, const std::string& description) {
  using namespace value_field;
  ProtobufMessage shape;
  for (const int64_t d : dims) {
    ProtobufMessage dimension;
    if (d == kBatch) {
      dimension.add_text(kDimParameter, "N");
    } else {
      dimension.add_int(kDimValue, d);
    }
    shape.add_message(kDim, std::move(dimension));
  }
  ProtobufMessage tensor;
  tensor.add_int(kElementType, data_type);
  tensor.add_message(kShape, std::move(shape));
  ProtobufMessage type;
  type.add_message(kTensorType, std::move(tensor));
  ProtobufMessage m;
  m.add_text(kName, name);
  m.add_message(kType, std::move(type));
  m.add_text(kDescription, description);
  return m;
}

constexpr int64_t kTextDataType = 8;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string text_of(float value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  TRAINYARD_CHECK(error == std::errc(), "a float has less than 32 characters");
  return {buffer, end};
}

}  // namespace

int64_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kU8:
      return 2;
    case DType::kI32:
      return 6;
    case DType::kI64:
      return 7;
    case DType::kF64:
      return 11;
  }
  TRAINYARD_CHECK(false, "an element type without a number in ONNX");
  return 0;
}

std::string GraphWriter::add_node(std::string_view op, std::vector<std::string> inputs,
                                  std::string output, const Attributes& attributes) {
  add_node_with_outputs(op, inputs, {output}, attributes);
  return output;
}

void GraphWriter::add_node_with_outputs(std::string_view op, const std::vector<std::string>& inputs,
                                        const std::vector<std::string>& outputs,
                                        const Attributes& attributes) {
  using namespace node_field;
  ProtobufMessage m;
  for (const std::string& name : inputs) m.add_text(kInput, name);
  for (const std::string& name : outputs) m.add_text(kOutput, name);
  m.add_text(kName, outputs.at(0));
  m.add_text(kOpType, op);
  for (const auto& [name, value] : attributes.items()) {
    m.add_message(kAttribute, attribute_message(name, value));
  }
  nodes_.push_back(std::move(m));
  ops_.emplace(op);
  values_.insert(outputs.begin(), outputs.end());
}

std::string GraphWriter::add_codes(const std::string& texts, const std::vector<std::string>& names,
                                   const std::string& output) {
  using namespace node_field;
  std::vector<int64_t> codes(names.size());
  std::iota(codes.begin(), codes.end(), int64_t{1});
  ProtobufMessage m;
  m.add_text(kInput, texts);
  m.add_text(kOutput, output);
  m.add_text(kName, output);
  m.add_text(kOpType, "LabelEncoder");
  m.add_message(kAttribute, attribute_message("default_int64", int64_t{0}));
  m.add_message(kAttribute, texts_message("keys_strings", names));
  m.add_message(kAttribute, attribute_message("values_int64s", std::move(codes)));
  m.add_text(kDomain, kMlDomain);
  nodes_.push_back(std::move(m));
  values_.insert(output);
  return output;
}

void GraphWriter::add_initializer(const std::string& name, const TensorType& type,
                                  std::span<const std::byte> bytes) {
  TRAINYARD_CHECK(std::ssize(bytes) == type.bytes(), "bytes that do not fit the type of " + name);
  ProtobufMessage m = tensor_header(name, type);
  m.add_borrowed(tensor_field::kRawData, bytes);
  initializers_.push_back(std::move(m));
  values_.insert(name);
}

std::string GraphWriter::constant(const std::vector<int64_t>& values) {
  return add_constant("I64" + Shape(values).to_string(),
                      {Shape{static_cast<int64_t>(values.size())}, DType::kI64}, bytes_of(values));
}
std::string GraphWriter::constant(float value) {
  return add_constant("F32 " + text_of(value), {Shape{}, DType::kF32},
                      bytes_of(std::vector<float>{value}));
}
std::string GraphWriter::constant(int64_t value) {
  return add_constant("I64 " + std::to_string(value), {Shape{}, DType::kI64},
                      bytes_of(std::vector<int64_t>{value}));
}

std::string GraphWriter::add_constant(const std::string& what, const TensorType& type,
                                      const std::string& bytes) {
  std::string name = "constant:" + what;
  if (shared_.insert(name).second) add_owned(name, type, bytes);
  return name;
}

std::string GraphWriter::batch_of(const std::string& value) {
  std::string name = value + ":batch";
  if (shared_.insert(name).second) {
    add_node("Shape", {value}, name, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  }
  return name;
}

void GraphWriter::add_floats(const std::string& name, Shape shape,
                             const std::vector<float>& values) {
  const TensorType type{std::move(shape), DType::kF32};
  TRAINYARD_CHECK(type.shape.elements() == std::ssize(values), "values that do not fit " + name);
  add_owned(name, type, bytes_of(values));
}

void GraphWriter::add_doubles(const std::string& name, Shape shape,
                              const std::vector<double>& values) {
  const TensorType type{std::move(shape), DType::kF64};
  TRAINYARD_CHECK(type.shape.elements() == std::ssize(values), "values that do not fit " + name);
  add_owned(name, type, bytes_of(values));
}

void GraphWriter::add_owned(const std::string& name, const TensorType& type,
                            const std::string& bytes) {
  ProtobufMessage m = tensor_header(name, type);
  m.add_text(tensor_field::kRawData, bytes);
  initializers_.push_back(std::move(m));
  values_.insert(name);
}

void GraphWriter::add_input(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                            const std::string& description) {
  inputs_.push_back(value_message(name, data_type_of(dtype), dims, description));
}
void GraphWriter::add_text_input(const std::string& name, const std::vector<int64_t>& dims,
                                 const std::string& description) {
  inputs_.push_back(value_message(name, kTextDataType, dims, description));
}
void GraphWriter::add_output(const std::string& name, DType dtype, const std::vector<int64_t>& dims,
                             const std::string& description) {
  outputs_.push_back(value_message(name, data_type_of(dtype), dims, description));
}

ProtobufMessage GraphWriter::finish(const std::string& name) && {
  ProtobufMessage graph;
  const auto add_all = [&](int field, std::vector<ProtobufMessage>& messages) {
    for (ProtobufMessage& m : messages) graph.add_message(field, std::move(m));
  };
  add_all(graph_field::kNode, nodes_);
  graph.add_text(graph_field::kName, name);
  add_all(graph_field::kInitializer, initializers_);
  add_all(graph_field::kInput, inputs_);
  add_all(graph_field::kOutput, outputs_);
  return graph;
}

}  // namespace trainyard::onnx
