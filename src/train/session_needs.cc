// Finds which kernels and how much workspace a session needs, before a backend runs it.
#include <set>

#include "src/graph/op.h"
#include "src/train/session.h"

namespace trainyard {

Status check_kernels(const RunPrograms& programs, const Backend& backend) {
  std::set<std::string> missing;
  const auto visit = [&](const Program& program) {
    for (const Node& node : program.graph.nodes()) {
      if (!backend.has_kernel(node.op->type())) missing.insert(std::string(node.op->type()));
    }
  };
  visit(programs.train.program);
  for (const auto* other : {&programs.update, &programs.average, &programs.evaluate}) {
    if (other->has_value()) visit((*other)->program);
  }
  if (missing.empty()) return {};
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  return make_error(ErrorCode::kFailedPrecondition, "MODEL_OP_UNSUPPORTED",
                    "model: the " + std::string(backend.name()) + " backend has no kernel for " +
                        names + "; choose another device");
}

int64_t measure_workspace(RunPrograms programs, Backend& backend) {
  int64_t bytes = 0;
  const auto visit = [&](BoundProgram& bound) {
    const PreparedProgram prepared(std::move(bound.program), backend);
    bytes = std::max(bytes, prepared.workspace_bytes());
  };
  visit(programs.train);
  for (auto* other : {&programs.update, &programs.average, &programs.evaluate}) {
    if (other->has_value()) visit(**other);
  }
  return bytes;
}

}  // namespace trainyard
