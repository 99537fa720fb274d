// src/onnx/importer_axes.h: how the axes of two views become those of one layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/onnx/importer.h"

namespace trainyard::onnx {

/// Refusal of something that has no layer.
Error misfit(const std::string& what);
int64_t product_of(const View& view, const std::vector<int>& atoms);
bool holds_batch(const std::vector<int>& dim);
/// A constant's dimensions as if a layer computed it.
View shape_view(const Constant& c);
/// Splits atoms until dimension `i` of both is made of the same ones, or one of them has size 1.
Status align(View& a, View& b, size_t i);

/// An atom of the result of two operands: theirs, or -1 where one has size 1.
struct JointAtom {
  int a = -1, b = -1;
  int64_t size = 1;
};

struct Joint {
  std::vector<JointAtom> atoms;              // in the order of the layer's axes, without the batch
  std::vector<std::vector<JointAtom>> dims;  // of the result; a = b = 0 stands for the batch
};

Joint join(const View& a, const View& b, size_t dims);
/// The dimensions of the result of a joint.
void push_dims(const Joint& joint, View& result);

struct Importer::Axes {
  std::vector<std::vector<JointAtom>> groups;

  /// Neighbors that both operands have side by side in one axis, or both lack, share an axis.
  static Axes of(const std::vector<JointAtom>& atoms, const std::vector<int>* axis_a,
                 const std::vector<int>* axis_b) {
    const auto together = [](int p, int q, const std::vector<int>* axis) {
      if (p < 0 || q < 0) return p == q;
      return axis == nullptr ||
             (q == p + 1 && (*axis)[static_cast<size_t>(p)] == (*axis)[static_cast<size_t>(q)]);
    };
    Axes axes;
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (i == 0 || !together(atoms[i - 1].a, atoms[i].a, axis_a) ||
          !together(atoms[i - 1].b, atoms[i].b, axis_b)) {
        axes.groups.emplace_back();
      }
      axes.groups.back().push_back(atoms[i]);
    }
    return axes;
  }
  std::vector<std::vector<int>> of_operand(bool is_first) const {
    std::vector<std::vector<int>> all;
    for (const auto& group : groups) {
      auto& atoms = all.emplace_back();
      for (const JointAtom& j : group) {
        const int atom = is_first ? j.a : j.b;
        if (atom > 0) atoms.push_back(atom);
      }
    }
    return all;
  }
};

}  // namespace trainyard::onnx
