// Writes ops that move elements without changing them.
#include "src/onnx/op_table.h"
#include "src/ops/axes.h"
#include "src/ops/concat.h"
#include "src/ops/slice.h"
#include "src/ops/transpose.h"

namespace trainyard::onnx {
namespace {

void write_reshape(NodeWriter& w) {
  w.put("Reshape", {w.input(0), w.onnx().constant(w.any_batch())});
}

// If the shape includes the batch, the batch size is read from a value at run time, since Expand
// has no -1.
void write_expand(NodeWriter& w) {
  std::vector<int64_t> dims = w.any_batch();
  if (dims.empty() || dims[0] != kBatch) {
    return w.put("Expand", {w.input(0), w.onnx().constant(dims)});
  }
  std::string shape = w.batch();
  if (dims.size() > 1) {
    dims.erase(dims.begin());
    shape =
        w.put_between("shape", "Concat", {shape, w.onnx().constant(dims)}, {{"axis", int64_t{0}}});
  }
  w.put("Expand", {w.input(0), shape});
}

void write_flatten(NodeWriter& w) {
  w.put("Flatten", {w.input(0)}, {{"axis", w.attributes().get_int("axis", 1)}});
}

void write_concat(NodeWriter& w) {
  w.put("Concat", w.inputs(), {{"axis", w.attributes().get_int("axis", 0)}});
}

void write_split(NodeWriter& w) {
  const int64_t given = w.attributes().get_int("axis", 0);
  const int64_t axis = given < 0 ? given + w.shape(0).rank() : given;
  const std::vector<int64_t> sizes = split_sizes(w.attributes(), w.shape(0)[axis]);
  w.onnx().add_node_with_outputs("Split", {w.input(0), w.onnx().constant(sizes)}, w.outputs(),
                                 {{"axis", axis}});
}

void write_slice(NodeWriter& w) {
  const std::vector<int64_t> starts = w.attributes().get_ints("starts", {});
  std::vector<int64_t> axes(starts.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  const std::vector<int64_t> steps(starts.size(), 1);
  GraphWriter& onnx = w.onnx();
  w.put("Slice",
        {w.input(0), onnx.constant(starts), onnx.constant(w.attributes().get_ints("ends", {})),
         onnx.constant(w.attributes().get_ints("axes", axes)),
         onnx.constant(w.attributes().get_ints("steps", steps))});
}

// Layers only cast to integers. Casts between storages come from passes, which are not run for
// export.
void write_cast(NodeWriter& w) { w.put("Cast", {w.input(0)}, {{"to", data_type_of(DType::kI32)}}); }

void write_transpose(NodeWriter& w) {
  w.put("Transpose", {w.input(0)}, {{"perm", transpose_perm(w.attributes(), w.shape(0).rank())}});
}

}  // namespace

std::vector<OpRow> shape_rows() {
  return {{.op = "Reshape", .write = write_reshape},
          {.op = "Expand", .onnx = {"Expand", "Shape", "Concat"}, .write = write_expand},
          {.op = "Flatten", .write = write_flatten},
          {.op = "Concat", .write = write_concat},
          {.op = "Split", .write = write_split},
          {.op = "Slice", .write = write_slice},
          {.op = "Transpose", .write = write_transpose},
          {.op = "Cast", .write = write_cast}};
}

}  // namespace trainyard::onnx
