// Every op there is. An explicit list, because static initialisers of a static library are dropped
// by the linker when nothing else in their file is used.
#include <algorithm>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/adam_update.h"
#include "src/ops/add.h"
#include "src/ops/average_pool.h"
#include "src/ops/batch_normalization.h"
#include "src/ops/constant_of_shape.h"
#include "src/ops/conv.h"
#include "src/ops/dropout.h"
#include "src/ops/embedding_bag.h"
#include "src/ops/flatten.h"
#include "src/ops/gelu.h"
#include "src/ops/gemm.h"
#include "src/ops/global_average_pool.h"
#include "src/ops/max_pool.h"
#include "src/ops/mean_squared_error.h"
#include "src/ops/recurrent.h"
#include "src/ops/relu.h"
#include "src/ops/reorder.h"
#include "src/ops/reshape.h"
#include "src/ops/sgd_update.h"
#include "src/ops/sigmoid.h"
#include "src/ops/softmax_xent.h"
#include "src/ops/tanh.h"

namespace trainyard {
namespace {

const std::vector<const Op*>& registry() {
  static const std::vector<const Op*> ops = {
      add_op(),
      relu_op(),
      relu_grad_op(),
      reorder_op(),
      sigmoid_op(),
      sigmoid_grad_op(),
      tanh_op(),
      tanh_grad_op(),
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
      gemm_op(),
      gemm_grad_op(),
      gelu_op(),
      gelu_grad_op(),
      flatten_op(),
      flatten_grad_op(),
      reshape_op(),
      reshape_grad_op(),
      dropout_op(),
      dropout_grad_op(),
      lstm_op(),
      lstm_grad_op(),
      gru_op(),
      gru_grad_op(),
      embedding_bag_op(),
      embedding_bag_grad_op(),
      softmax_xent_op(),
      softmax_xent_grad_op(),
      mean_squared_error_op(),
      mean_squared_error_grad_op(),
      constant_of_shape_op(),
      sgd_update_op(),
      adam_update_op(),
      adamw_update_op(),
  };
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
