// The list of all ops. It is explicit, because the linker drops a static library's object files
// that nothing refers to, together with their static initializers.
#include <algorithm>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/accumulate_gradient.h"
#include "src/ops/activation.h"
#include "src/ops/add.h"
#include "src/ops/all_reduce.h"
#include "src/ops/arithmetic.h"
#include "src/ops/attention.h"
#include "src/ops/average_pool.h"
#include "src/ops/batch_normalization.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/ops/cast.h"
#include "src/ops/clip_gradient.h"
#include "src/ops/concat.h"
#include "src/ops/constant_of_shape.h"
#include "src/ops/conv.h"
#include "src/ops/conv_transpose.h"
#include "src/ops/distinct_rows.h"
#include "src/ops/dropout.h"
#include "src/ops/embedding_bag.h"
#include "src/ops/expand.h"
#include "src/ops/flatten.h"
#include "src/ops/gather.h"
#include "src/ops/gemm.h"
#include "src/ops/global_average_pool.h"
#include "src/ops/gradient_norm.h"
#include "src/ops/group_normalization.h"
#include "src/ops/head_loss.h"
#include "src/ops/image_to_sequence.h"
#include "src/ops/layer_normalization.h"
#include "src/ops/loss_scale_update.h"
#include "src/ops/mat_mul.h"
#include "src/ops/max_pool.h"
#include "src/ops/moving_average_update.h"
#include "src/ops/optimizer_update.h"
#include "src/ops/pad.h"
#include "src/ops/pointwise_loss.h"
#include "src/ops/position_embedding.h"
#include "src/ops/recurrent.h"
#include "src/ops/reduce.h"
#include "src/ops/reorder.h"
#include "src/ops/reshape.h"
#include "src/ops/resize.h"
#include "src/ops/reverse_sequence.h"
#include "src/ops/rotary_embedding.h"
#include "src/ops/row_exchange.h"
#include "src/ops/sampled_xent.h"
#include "src/ops/sequence_lengths.h"
#include "src/ops/sequence_pool.h"
#include "src/ops/shards.h"
#include "src/ops/slice.h"
#include "src/ops/softmax.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/split_xent.h"
#include "src/ops/tensor_scatter.h"
#include "src/ops/transpose.h"

namespace trainyard {
namespace {

/// Returns the ops on rows of tokens and on sequences of their vectors.
std::vector<const Op*> token_ops() {
  return {
      gather_op(),
      gather_grad_op(),
      split_gather_op(),
      split_gather_grad_op(),
      position_embedding_op(),
      position_embedding_grad_op(),
      rotary_tables_op(),
      rotary_embedding_op(),
      reverse_sequence_op(),
      sequence_lengths_op(),
      sequence_pool_op(),
      sequence_pool_grad_op(),
      tensor_scatter_op(),
      image_to_sequence_op(),
      image_to_sequence_grad_op(),
      attention_op(),
      attention_grad_op(),
  };
}

const std::vector<const Op*>& registry() {
  static const std::vector<const Op*> ops = [] {
    std::vector<const Op*> all = {
        add_op(),
        concat_op(),
        concat_grad_op(),
        split_op(),
        split_grad_op(),
        slice_op(),
        slice_grad_op(),
        pad_op(),
        pad_grad_op(),
        resize_op(),
        resize_grad_op(),
        transpose_op(),
        expand_op(),
        sum_to_op(),
        reorder_op(),
        cast_op(),
        conv_op(),
        conv_grad_op(),
        max_pool_op(),
        max_pool_grad_op(),
        average_pool_op(),
        average_pool_grad_op(),
        global_average_pool_op(),
        global_average_pool_grad_op(),
        batch_normalization_op(),
        batch_normalization_grad_op(),
        group_normalization_op(),
        instance_normalization_op(),
        group_normalization_grad_op(),
        layer_normalization_op(),
        layer_normalization_grad_op(),
        rms_normalization_op(),
        rms_normalization_grad_op(),
        gemm_gelu_op(),
        gelu_gemm_grad_op(),
        gemm_relu_op(),
        relu_gemm_grad_op(),
        gemm_add_op(),
        gemm_grad_add_op(),
        conv_relu_op(),
        relu_conv_grad_op(),
        skip_normalization_op(),
        skip_normalization_grad_op(),
        mat_mul_op(),
        mat_mul_grad_op(),
        softmax_op(),
        softmax_grad_op(),
        log_softmax_op(),
        log_softmax_grad_op(),
        batch_normalization_relu_op(),
        batch_normalization_relu_grad_op(),
        skip_batch_normalization_relu_grad_op(),
        batch_normalization_replay_op(),
        gradient_norm_op(),
        loss_scale_update_op(),
        clip_gradient_op(),
        accumulate_gradient_op(),
        all_reduce_start_op(),
        all_reduce_done_op(),
        reduce_scatter_start_op(),
        reduce_scatter_done_op(),
        all_gather_start_op(),
        all_gather_done_op(),
        gather_shards_start_op(),
        gather_shards_done_op(),
        gather_rows_op(),
        scatter_rows_op(),
        class_softmax_op(),
        split_xent_op(),
        split_xent_grad_op(),
        sample_classes_op(),
        take_rows_op(),
        distinct_rows_op(),
        sampled_xent_op(),
        sampled_xent_grad_op(),
        gradient_squares_op(),
        norm_of_squares_op(),
        moving_average_update_op(),
        conv_transpose_op(),
        conv_transpose_grad_op(),
        lstm_op(),
        lstm_grad_op(),
        gru_op(),
        gru_grad_op(),
        embedding_bag_op(),
        embedding_bag_grad_op(),
        gemm_op(),
        gemm_grad_op(),
        flatten_op(),
        flatten_grad_op(),
        reshape_op(),
        reshape_grad_op(),
        dropout_op(),
        dropout_grad_op(),
        softmax_xent_op(),
        kl_divergence_op(),
        softmax_xent_grad_op(),
        head_loss_op(),
        constant_of_shape_op(),
    };
    for (const Op* op : token_ops()) all.push_back(op);
    // Families of ops that differ only in a row of a table.
    for (const auto family : {activation_ops(), arithmetic_ops(), reduce_ops(),
                              pointwise_loss_ops(), optimizer_update_ops()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return ops;
}

}  // namespace

const Op* find_op(std::string_view type) {
  const auto& ops = registry();
  const auto it =
      std::find_if(ops.begin(), ops.end(), [&](const Op* op) { return op->type() == type; });
  return it == ops.end() ? nullptr : *it;
}

const Op& get_op(std::string_view type) {
  const Op* op = find_op(type);
  TRAINYARD_CHECK(op != nullptr, "op " + std::string(type) + " is not registered");
  return *op;
}

std::vector<const Op*> all_ops() { return registry(); }

}  // namespace trainyard
