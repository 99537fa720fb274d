// src/onnx/importer_axes.h: combines the axes of two views into those of one layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/onnx/importer.h"

namespace trainyard::onnx {

/// Returns the error for something that no layer can express.
Error misfit(const std::string& what);
int64_t product_of(const View& view, const std::vector<int>& atoms);
bool holds_batch(const std::vector<int>& dim);
/// Refuses a view with the batch in several dimensions, which would combine each sample with all.
Status check_batch_is_one(const View& view);
/// Returns the view that a constant would have as the output of a layer, which has the elements of
/// one sample.
View shape_view(const Constant& c);
/// Splits atoms until both views have the same atoms in dimension `i`, or one of them has size 1.
Status align(View& a, View& b, size_t i);

/// An atom of the result of two operands: the atoms of both operands, or -1 for an operand of size
/// 1.
struct JointAtom {
  int a = -1, b = -1;
  int64_t size = 1;
};

struct Joint {
  std::vector<JointAtom> atoms;  // in the order of the layer's axes; excludes the batch
  // Atoms of the result's dimensions; a = b = 0 stands for the batch.
  std::vector<std::vector<JointAtom>> dims;
};

Joint join(const View& a, const View& b, size_t dims);
/// Appends the dimensions of `joint` to `result`.
void push_dims(const Joint& joint, View& result);

struct Importer::Axes {
  std::vector<std::vector<JointAtom>> groups;

  /// Groups atoms into axes. Adjacent atoms share an axis if, in each operand, they are adjacent in
  /// one axis or both missing.
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
