#include "server/scheduler/order.h"

#include <algorithm>
#include <utility>

namespace trainyard::server {

Order::Order(const Shares& shares, int64_t now_us) : shares_(shares), now_us_(now_us) {}

double Order::usage(const std::string& owner) {
  if (!shares_.enabled()) return 0;
  const auto [known, fresh] = usage_.try_emplace(owner, 0);
  if (fresh) known->second = shares_.usage(owner, now_us_);
  return known->second;
}

void Order::charge(const std::string& owner, size_t devices) {
  if (!shares_.enabled()) return;
  (void)usage(owner);
  usage_.find(owner)->second +=
      static_cast<double>(devices) * static_cast<double>(Shares::kLeastUs) / 1e6;
}

void Order::push(Head head) {
  heads_.push_back(head);
  std::ranges::push_heap(heads_, is_behind);
}

void Order::push(std::vector<Head> heads) {
  heads_ = std::move(heads);
  std::ranges::make_heap(heads_, is_behind);
}

Head Order::pop() {
  for (;;) {
    std::ranges::pop_heap(heads_, is_behind);
    Head head = heads_.back();
    heads_.pop_back();
    const double now = usage(head.of->owner);
    if (now <= head.usage) return head;
    head.usage = now;  // its owner was given devices in the meantime
    push(head);
  }
}

}  // namespace trainyard::server
