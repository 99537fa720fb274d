#include "src/onnx/importer_axes.h"

#include <algorithm>

namespace trainyard::onnx {

Error misfit(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED", what);
}

int64_t product_of(const View& view, const std::vector<int>& atoms) {
  int64_t n = 1;
  for (const int atom : atoms) n *= view.atoms[static_cast<size_t>(atom)];
  return n;
}

bool holds_batch(const std::vector<int>& dim) { return std::ranges::find(dim, 0) != dim.end(); }

Status check_batch_is_one(const View& view) {
  if (std::ranges::count_if(view.dims, holds_batch) <= 1) return {};
  return misfit("shape " + to_string(view.extents()) + " combines each sample with all samples");
}

View shape_view(const Constant& c) {
  View view;
  for (const Extent& e : c.dims) {
    view.push_dim(e.count);
    if (e.batch) view.dims.back().insert(view.dims.back().begin(), 0);
  }
  return view;
}

Status align(View& a, View& b, size_t i) {
  if (a.dims[i].empty() || b.dims[i].empty()) return {};
  const auto refuse = [&] {
    return misfit("shapes " + to_string(a.extents()) + " and " + to_string(b.extents()) +
                  " cannot be combined without mixing samples");
  };
  for (size_t k = 0; k < a.dims[i].size() || k < b.dims[i].size(); ++k) {
    if (k >= a.dims[i].size() || k >= b.dims[i].size()) return refuse();
    const int x = a.dims[i][k], y = b.dims[i][k];
    if (x == 0 || y == 0) {
      if (x != y) return refuse();
      continue;
    }
    const int64_t sx = a.atoms[static_cast<size_t>(x)], sy = b.atoms[static_cast<size_t>(y)];
    if (sx == sy) continue;
    if (sx > sy && sx % sy == 0) {
      a.split(x, sy);
    } else if (sy > sx && sy % sx == 0) {
      b.split(y, sx);
    } else {
      return refuse();
    }
  }
  return {};
}

Joint join(const View& a, const View& b, size_t dims) {
  Joint joint;
  for (size_t i = 0; i < dims; ++i) {
    const std::vector<int>&da = a.dims[i], &db = b.dims[i];
    auto& dim = joint.dims.emplace_back();
    for (size_t k = 0; k < std::max(da.size(), db.size()); ++k) {
      const int x = da.empty() ? -1 : da[k], y = db.empty() ? -1 : db[k];
      if (x == 0 || y == 0) {
        dim.push_back({0, 0, 1});
        continue;
      }
      const int64_t size =
          x > 0 ? a.atoms[static_cast<size_t>(x)] : b.atoms[static_cast<size_t>(y)];
      dim.push_back({x, y, size});
      joint.atoms.push_back(dim.back());
    }
  }
  return joint;
}

void push_dims(const Joint& joint, View& result) {
  for (const auto& dim : joint.dims) {
    auto& atoms = result.dims.emplace_back();
    for (const JointAtom& wanted : dim) {
      if (wanted.a == 0 && wanted.b == 0) {
        atoms.push_back(0);
        continue;
      }
      const auto it = std::ranges::find_if(
          joint.atoms, [&](const JointAtom& j) { return j.a == wanted.a && j.b == wanted.b; });
      atoms.push_back(static_cast<int>(it - joint.atoms.begin()) + 1);
    }
  }
}

}  // namespace trainyard::onnx
