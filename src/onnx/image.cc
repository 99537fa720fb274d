// Writes convolutions, pools, channel normalizations, and the dense layer.
#include "src/base/check.h"
#include "src/onnx/op_table.h"
#include "src/ops/window.h"

namespace trainyard::onnx {
namespace {

void write_gemm(NodeWriter& w) { w.put("Gemm", w.inputs(), {{"transB", int64_t{1}}}); }

// The op has the same attributes as ONNX's.
void write_conv(NodeWriter& w) { w.put(w.op(), w.inputs(), w.attributes()); }

// `ceil_mode` is replaced by explicit padding, because runtimes disagree on windows that reach
// beyond the padding.
void write_pool(NodeWriter& w) {
  TRAINYARD_CHECK(w.attributes().get_int("relu", 0) == 0, "a graph is written before its passes");
  const kernels::Window window = pool_window(w.attributes(), w.shape(0));
  Attributes attributes = {
      {"kernel_shape", std::vector<int64_t>{window.R, window.S}},
      {"strides", std::vector<int64_t>{window.stride_h, window.stride_w}},
      {"pads",
       std::vector<int64_t>{window.pad_top, window.pad_left, window.pad_bottom, window.pad_right}},
      {"dilations", std::vector<int64_t>{window.dilation_h, window.dilation_w}}};
  if (w.op() == "AveragePool") {
    attributes.set("count_include_pad", w.attributes().get_int("count_include_pad", 0));
  }
  w.put(w.op(), w.inputs(), attributes);
}

void write_batch_normalization(NodeWriter& w) {
  w.put("BatchNormalization", w.inputs(), {{"epsilon", w.attributes().get_float("epsilon", 1e-5)}});
}

/// Returns a constant F32 list with one element for each of `values`.
std::string floats(NodeWriter& w, const std::string& what, const std::vector<double>& values) {
  const std::string wide = w.between(what + "_double");
  w.onnx().add_doubles(wide, Shape{static_cast<int64_t>(values.size())}, values);
  return w.put_between(what, "Cast", {wide}, {{"to", data_type_of(DType::kF32)}});
}

void write_instance_normalization(NodeWriter& w) {
  w.put("InstanceNormalization", w.inputs(),
        {{"epsilon", w.attributes().get_float("epsilon", 1e-5)}});
}

// Groups are reshaped to channels, [N, G, values], and normalized by InstanceNormalization; then
// each channel is scaled and shifted. ONNX's GroupNormalization has this meaning only since opset
// 21.
void write_group_normalization(NodeWriter& w) {
  const Shape& x = w.shape(0);
  const int64_t groups = w.attributes().get_int("num_groups", 1);
  const auto count = static_cast<size_t>(groups);
  std::vector<int64_t> full(x.dims().begin(), x.dims().end()), per_channel(full.size(), 1);
  full[0] = kBatch;
  per_channel[1] = x[1];
  GraphWriter& onnx = w.onnx();
  const std::string grouped =
      w.put_between("groups", "Reshape",
                    {w.input(0), onnx.constant({kBatch, groups, x.elements() / (x[0] * groups)})});
  const std::string normal =
      w.put_between("normal", "InstanceNormalization",
                    {grouped, floats(w, "ones", std::vector<double>(count, 1)),
                     floats(w, "zeros", std::vector<double>(count, 0))},
                    {{"epsilon", w.attributes().get_float("epsilon", 1e-5)}});
  const std::string channels = w.put_between("channels", "Reshape", {normal, onnx.constant(full)});
  const std::string shape = onnx.constant(per_channel);
  const std::string scale = w.put_between("scale", "Reshape", {w.input(1), shape});
  const std::string scaled = w.put_between("scaled", "Mul", {channels, scale});
  w.put("Add", {scaled, w.put_between("b", "Reshape", {w.input(2), shape})});
}

void write_pad(NodeWriter& w) {
  const std::string mode = w.attributes().get_string("mode", "constant");
  std::vector<std::string> operands = {w.input(0),
                                       w.onnx().constant(w.attributes().get_ints("pads", {}))};
  const bool has_axes = w.attributes().find("axes") != nullptr;
  if (mode == "constant") {
    operands.push_back(w.onnx().constant(static_cast<float>(w.attributes().get_float("value", 0))));
  } else if (has_axes) {
    operands.emplace_back();
  }
  if (has_axes) operands.push_back(w.onnx().constant(w.attributes().get_ints("axes", {})));
  w.put("Pad", operands, {{"mode", mode}});
}

void write_resize(NodeWriter& w) {
  const Attributes& a = w.attributes();
  std::vector<std::string> operands = {w.input(0), ""};  // "": no region of interest
  if (a.find("sizes") != nullptr) {
    operands.insert(operands.end(), {"", w.onnx().constant(a.get_ints("sizes", {}))});
  } else {
    const double scale = a.get_float("scales", 1);
    operands.push_back(floats(w, "scales", {scale, scale}));
  }
  const std::string mode = a.get_string("mode", "nearest");
  Attributes attributes = {{"axes", std::vector<int64_t>{2, 3}},
                           {"mode", mode},
                           {"coordinate_transformation_mode",
                            a.get_string("coordinate_transformation_mode", "half_pixel")}};
  if (mode == "nearest") {
    attributes.set("nearest_mode", a.get_string("nearest_mode", "round_prefer_floor"));
  }
  w.put("Resize", operands, attributes);
}

// Turns pixels into positions: [N, C, H, W] -> [N, C, H W] -> [N, H W, C].
void write_image_to_sequence(NodeWriter& w) {
  const Shape& x = w.shape(0);
  const std::string rows = w.put_between(
      "rows", "Reshape", {w.input(0), w.onnx().constant({kBatch, x[1], x[2] * x[3]})});
  w.put("Transpose", {rows}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
}

}  // namespace

std::vector<OpRow> image_rows() {
  return {{.op = "Gemm", .write = write_gemm},
          {.op = "Conv", .write = write_conv},
          {.op = "ConvTranspose", .write = write_conv},
          {.op = "MaxPool", .write = write_pool},
          {.op = "AveragePool", .write = write_pool},
          {.op = "GlobalAveragePool"},
          {.op = "BatchNormalization", .write = write_batch_normalization},
          {.op = "InstanceNormalization", .write = write_instance_normalization},
          {.op = "GroupNormalization",
           .onnx = {"InstanceNormalization", "Reshape", "Cast", "Mul", "Add"},
           .write = write_group_normalization},
          {.op = "Pad", .write = write_pad},
          {.op = "Resize", .onnx = {"Resize", "Cast"}, .write = write_resize},
          {.op = "ImageToSequence",
           .onnx = {"Reshape", "Transpose"},
           .write = write_image_to_sequence}};
}

}  // namespace trainyard::onnx
