// Convolutions, pools, normalisation of channels, and the dense layer.
#include "src/onnx/op_table.h"
#include "src/ops/window.h"

namespace trainyard::onnx {
namespace {

void write_gemm(NodeWriter& w) { w.put("Gemm", w.inputs(), {{"transB", int64_t{1}}}); }

// Attributes are ONNX's already.
void write_conv(NodeWriter& w) { w.put(w.op(), w.inputs(), w.attributes()); }

// `ceil_mode` is written out as padding: runtimes differ about windows that reach beyond it.
void write_pool(NodeWriter& w) {
  const kernels::Window window = pool_window(w.attributes(), w.shape(0));
  Attributes attributes = {{"kernel_shape", std::vector<int64_t>{window.R, window.S}},
                           {"strides", std::vector<int64_t>{window.stride_h, window.stride_w}},
                           {"pads", std::vector<int64_t>{window.pad_top, window.pad_left,
                                                         window.pad_bottom, window.pad_right}}};
  if (w.op() == "AveragePool") {
    attributes.set("count_include_pad", w.attributes().get_int("count_include_pad", 0));
  }
  w.put(w.op(), w.inputs(), attributes);
}

void write_batch_normalization(NodeWriter& w) {
  w.put("BatchNormalization", w.inputs(), {{"epsilon", w.attributes().get_float("epsilon", 1e-5)}});
}

// Pixels as positions: [N, C, H, W] -> [N, C, H W] -> [N, H W, C].
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
          {.op = "ImageToSequence",
           .onnx = {"Reshape", "Transpose"},
           .write = write_image_to_sequence}};
}

}  // namespace trainyard::onnx
