// Records the calls of gRPC in C++, as interceptors for servers and channels. C++17, gRPC 1.50 or newer, header only:
// compile with -I clients/c -I clients/cpp and link with -lskopos_ffi.
//
//     auto *recorder = skopos::rpc::start("kv", "traces");
//     skopos::rpc::record(builder, recorder);                                     // a grpc::ServerBuilder
//     auto channel = skopos::rpc::channel(recorder, address, credentials, "kv");  // instead of grpc::CreateChannel
//
// A call that a handler makes through such a channel belongs below the handler's request, as long as the handler stays in
// its thread, as handlers of the synchronous interface do. Other ones set the context of their thread themselves, by
// skopos_rpc_context_set_current.
//
// Moments of a call at the server: gRPC makes the interceptor in the thread that will run the handler, with the request's
// head. So the wait for that thread is not seen, and the handler's time begins here (t5). It ends with the status (t8), and
// the call with its close (t13).

#ifndef SKOPOS_GRPC_HPP
#define SKOPOS_GRPC_HPP

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/server_interceptor.h>

#include "skopos_rpc.h"

namespace skopos::rpc {

namespace detail {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// Most names that a factory remembers; a further one is interned again for each call.
constexpr std::size_t kMaxNames = 4096;
// The longest tracestate that is read or sent: the recommendation asks for 512 bytes, and proxies cut headers at 8 KiB.
constexpr std::size_t kTracestateBytes = 8192;
// The caller's time began before the request was here, and its cancellation may be here before its deadline.
constexpr std::chrono::milliseconds kEarly{10};

inline std::uint32_t status_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return SKOPOS_RPC_STATUS_OK;
    case grpc::StatusCode::CANCELLED:
      return SKOPOS_RPC_STATUS_CANCELLED;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return SKOPOS_RPC_STATUS_TIMED_OUT;
    default:
      return SKOPOS_RPC_STATUS_ERROR;
  }
}

// Interned names of calls and peers. `/kv.Store/Put` is `kv.Store/Put`.
class Names {
 public:
  explicit Names(const skopos_rpc_recorder *recorder) : recorder_(recorder) {}

  skopos_rpc_name call(const char *method) {
    const std::string name(method[0] == '/' ? method + 1 : method);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = calls_.find(name);
    if (known != calls_.end()) return known->second;
    const skopos_rpc_name made = skopos_rpc_intern(recorder_, name.c_str());
    if (calls_.size() < kMaxNames) calls_.emplace(name, made);
    return made;
  }

  // The address of a peer without its port, which differs for each connection.
  skopos_rpc_peer_id peer(const std::string &uri) {
    std::string name = uri.substr(0, uri.rfind(':'));
    const auto scheme = name.find(':');
    if (scheme != std::string::npos) name.erase(0, scheme + 1);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = peers_.find(name);
    if (known != peers_.end()) return known->second;
    const skopos_rpc_peer_id made = skopos_rpc_peer(recorder_, name.c_str());
    if (peers_.size() < kMaxNames) peers_.emplace(name, made);
    return made;
  }

 private:
  const skopos_rpc_recorder *recorder_;
  std::mutex mutex_;
  std::unordered_map<std::string, skopos_rpc_name> calls_;
  std::unordered_map<std::string, skopos_rpc_peer_id> peers_;
};

// The time that calls of a handler cover. Calls may overlap.
class Children {
 public:
  void begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (active_++ == 0) since_ = Clock::now();
  }

  void end() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--active_ == 0) covered_ += Clock::now() - since_;
  }

  std::uint64_t covered_ns() {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto open = active_ > 0 ? Clock::now() - since_ : Clock::duration::zero();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(covered_ + open).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::uint32_t active_ = 0;
  Clock::time_point since_;
  Clock::duration covered_ = Clock::duration::zero();
};

// What a handler that runs in this thread passes on to its calls.
struct Scope {
  std::shared_ptr<Children> children;
  std::string others;
};

inline Scope &scope() {
  thread_local Scope current;
  return current;
}

// Serializes the message that is about to be sent, as gRPC would do next, and returns the ticks that it took.
inline std::pair<std::uint64_t, std::uint64_t> serialize(const skopos_rpc_recorder *recorder,
                                                         InterceptorBatchMethods *methods) {
  const std::uint64_t from = skopos_rpc_ticks(recorder);
  methods->GetSerializedSendMessage();
  return {from, skopos_rpc_ticks(recorder)};
}

class ServerInterceptor final : public grpc::experimental::Interceptor {
 public:
  ServerInterceptor(const skopos_rpc_recorder *recorder, Names *names, grpc::experimental::ServerRpcInfo *info)
      : recorder_(recorder),
        names_(names),
        info_(info),
        is_unary_(info->type() == grpc::experimental::ServerRpcInfo::Type::UNARY),
        arrived_(skopos_rpc_ticks(recorder)) {}

  ~ServerInterceptor() override {
    std::lock_guard<std::mutex> lock(mutex_);
    finish(ended_ > 0 ? status_ : gone());
  }

  // Without the lock: to proceed can mean to run the whole handler, and ends in batches that come here again.
  void Intercept(InterceptorBatchMethods *methods) override {
    observe(methods);
    methods->Proceed();
  }

 private:
  void observe(InterceptorBatchMethods *methods) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto has = [methods](InterceptionHookPoints point) { return methods->QueryInterceptionHookPoint(point); };
    if (has(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) begin(methods->GetRecvInitialMetadata());
    // In the same batch, after the message was made from its bytes.
    if (is_unary_ && is_begun_ && has(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      skopos_rpc_span_interval_ticks(&span_, SKOPOS_RPC_INPUT_DESERIALIZATION, arrived_, skopos_rpc_ticks(recorder_));
    }
    if (has(InterceptionHookPoints::PRE_SEND_STATUS)) handled(methods->GetSendStatus());
    if (is_unary_ && has(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const auto [from, to] = serialize(recorder_, methods);
      skopos_rpc_span_interval_ticks(&span_, SKOPOS_RPC_OUTPUT_SERIALIZATION, from, to);
    }
    if (has(InterceptionHookPoints::POST_RECV_CLOSE)) {
      // Before a status: the caller has gone. ServerContext::IsCancelled would come here again, so it is not asked.
      if (ended_ > 0) finish(status_);
    }
  }

  void begin(std::multimap<grpc::string_ref, grpc::string_ref> *metadata) {
    if (is_begun_) return;
    is_begun_ = true;
    std::string parent, state;
    if (metadata != nullptr) {
      const auto find = [metadata](const char *name) {
        const auto found = metadata->find(name);
        return found == metadata->end() ? std::string() : std::string(found->second.data(), found->second.size());
      };
      parent = find("traceparent");
      state = find("tracestate");
    }
    skopos_rpc_context context{};
    const bool has_context = !parent.empty() && skopos_rpc_context_from_w3c(parent.c_str(), state.c_str(), &context) ==
                                                    SKOPOS_RPC_OK;
    skopos_rpc_target(recorder_, names_->call(info_->method()), has_context ? &context : nullptr, arrived_, &span_);
    skopos_rpc_span_peer(&span_, names_->peer(info_->server_context()->peer()));
    skopos_rpc_context own{};
    skopos_rpc_span_context(&span_, &own);
    skopos_rpc_context_set_current(&own, &before_);
    thread_ = std::this_thread::get_id();
    scope() = Scope{children_, state};
  }

  void handled(const grpc::Status &status) {
    ended_ = skopos_rpc_ticks(recorder_);
    status_ = status_of(status.error_code());
    if (is_begun_ && thread_ == std::this_thread::get_id()) {
      skopos_rpc_context_set_current(&before_, nullptr);
      scope() = Scope{};
    }
  }

  // The status of a call whose handler ended without one: its caller has gone.
  std::uint32_t gone() const {
    const bool has_passed = info_->server_context()->deadline() <= std::chrono::system_clock::now() + kEarly;
    return has_passed ? SKOPOS_RPC_STATUS_TIMED_OUT : SKOPOS_RPC_STATUS_CANCELLED;
  }

  void finish(std::uint32_t status) {
    if (!is_begun_ || is_finished_) return;
    is_finished_ = true;
    const std::uint64_t now = skopos_rpc_ticks(recorder_);
    const std::uint64_t end = ended_ > 0 ? ended_ : now;
    const std::uint64_t covered = children_->covered_ns();
    const std::uint64_t handler = skopos_rpc_ticks_to_ns(recorder_, end - std::min(end, arrived_));
    skopos_rpc_span_interval(&span_, SKOPOS_RPC_TARGET_EXECUTION_EXCLUSIVE, handler - std::min(handler, covered));
    if (covered > 0) skopos_rpc_span_interval(&span_, SKOPOS_RPC_CHILDREN, covered);
    if (ended_ > 0) skopos_rpc_span_interval_ticks(&span_, SKOPOS_RPC_TARGET_COMPLETION_CALLBACK, ended_, now);
    skopos_rpc_span_end(&span_, status);
  }

  const skopos_rpc_recorder *recorder_;
  Names *names_;
  grpc::experimental::ServerRpcInfo *info_;
  const bool is_unary_;
  const std::uint64_t arrived_;
  // Batches of one call can run in two threads.
  std::mutex mutex_;
  skopos_rpc_span span_{};
  skopos_rpc_context before_{};
  std::thread::id thread_;
  std::shared_ptr<Children> children_ = std::make_shared<Children>();
  std::uint64_t ended_ = 0;
  std::uint32_t status_ = SKOPOS_RPC_STATUS_OK;
  bool is_begun_ = false;
  bool is_finished_ = false;
};

class ClientInterceptor final : public grpc::experimental::Interceptor {
 public:
  ClientInterceptor(const skopos_rpc_recorder *recorder, Names *names, skopos_rpc_peer_id peer,
                    grpc::experimental::ClientRpcInfo *info)
      : recorder_(recorder),
        is_unary_(info->type() == grpc::experimental::ClientRpcInfo::Type::UNARY),
        children_(scope().children),
        others_(scope().others) {
    skopos_rpc_context parent{};
    const bool is_below = skopos_rpc_context_current(&parent) == 1;
    skopos_rpc_origin(recorder, names->call(info->method()), is_below ? &parent : nullptr, &span_);
    skopos_rpc_span_peer(&span_, peer);
    if (children_) children_->begin();
  }

  ~ClientInterceptor() override {
    std::lock_guard<std::mutex> lock(mutex_);
    finish(SKOPOS_RPC_STATUS_CANCELLED);
  }

  // Without the lock: to proceed can mean to run the whole handler, and ends in batches that come here again.
  void Intercept(InterceptorBatchMethods *methods) override {
    observe(methods);
    methods->Proceed();
  }

 private:
  void observe(InterceptorBatchMethods *methods) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto has = [methods](InterceptionHookPoints point) { return methods->QueryInterceptionHookPoint(point); };
    if (has(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) send_context(methods->GetSendInitialMetadata());
    if (is_unary_ && has(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const auto [from, to] = serialize(recorder_, methods);
      skopos_rpc_span_interval_ticks(&span_, SKOPOS_RPC_INPUT_SERIALIZATION, from, to);
    }
    if (has(InterceptionHookPoints::POST_RECV_STATUS)) {
      const grpc::Status *status = methods->GetRecvStatus();
      finish(status_of(status == nullptr ? grpc::StatusCode::UNKNOWN : status->error_code()));
    }
  }

  void send_context(std::multimap<std::string, std::string> *metadata) {
    skopos_rpc_context context{};
    skopos_rpc_span_context(&span_, &context);
    if (metadata == nullptr || context.request_low == 0) return;
    char parent[SKOPOS_RPC_TRACEPARENT_BYTES];
    std::vector<char> state(SKOPOS_RPC_TRACESTATE_BYTES + std::min(others_.size(), kTracestateBytes));
    const char *others = others_.empty() ? nullptr : others_.c_str();
    if (skopos_rpc_context_to_w3c(&context, others, parent, sizeof parent, state.data(), state.size()) !=
        SKOPOS_RPC_OK) {
      return;
    }
    metadata->erase("traceparent");
    metadata->erase("tracestate");
    metadata->emplace("traceparent", parent);
    metadata->emplace("tracestate", state.data());
  }

  void finish(std::uint32_t status) {
    if (is_finished_) return;
    is_finished_ = true;
    if (children_) children_->end();
    skopos_rpc_span_end(&span_, status);
  }

  const skopos_rpc_recorder *recorder_;
  const bool is_unary_;
  std::mutex mutex_;
  skopos_rpc_span span_{};
  std::shared_ptr<Children> children_;
  std::string others_;
  bool is_finished_ = false;
};

}  // namespace detail

// Makes interceptors for the calls of a server.
class ServerFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ServerFactory(const skopos_rpc_recorder *recorder) : recorder_(recorder), names_(recorder) {}

  // Without recording gRPC gets no interceptor for the call.
  grpc::experimental::Interceptor *CreateServerInterceptor(grpc::experimental::ServerRpcInfo *info) override {
    if (skopos_rpc_stage(recorder_) == SKOPOS_RPC_STAGE_OFF) return nullptr;
    return new detail::ServerInterceptor(recorder_, &names_, info);
  }

 private:
  const skopos_rpc_recorder *recorder_;
  detail::Names names_;
};

// Makes interceptors for the calls of a channel to the service `peer`.
class ClientFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  ClientFactory(const skopos_rpc_recorder *recorder, const std::string &peer)
      : recorder_(recorder), names_(recorder), peer_(peer.empty() ? 0 : skopos_rpc_peer(recorder, peer.c_str())) {}

  grpc::experimental::Interceptor *CreateClientInterceptor(grpc::experimental::ClientRpcInfo *info) override {
    if (skopos_rpc_stage(recorder_) == SKOPOS_RPC_STAGE_OFF) return nullptr;
    return new detail::ClientInterceptor(recorder_, &names_, peer_, info);
  }

 private:
  const skopos_rpc_recorder *recorder_;
  detail::Names names_;
  skopos_rpc_peer_id peer_;
};

// Starts the recorder of service `name` with its trace in `folder`; with an empty folder the agent of the node collects the
// records. Throws std::runtime_error with the reason.
inline const skopos_rpc_recorder *start(const std::string &name, const std::string &folder) {
  skopos_rpc_options *options = skopos_rpc_options_new(name.c_str());
  const std::string host = "grpc++ " + grpc::Version();
  skopos_rpc_options_host(options, host.c_str());
  if (!folder.empty()) skopos_rpc_options_trace_folder(options, folder.c_str());
  for (const std::uint32_t interval :
       {SKOPOS_RPC_ORIGIN_EXECUTION, SKOPOS_RPC_INPUT_SERIALIZATION, SKOPOS_RPC_INPUT_DESERIALIZATION,
        SKOPOS_RPC_TARGET_EXECUTION_EXCLUSIVE, SKOPOS_RPC_OUTPUT_SERIALIZATION, SKOPOS_RPC_TARGET_COMPLETION_CALLBACK,
        SKOPOS_RPC_CHILDREN}) {
    skopos_rpc_options_sees(options, interval);
  }
  skopos_rpc_options_cannot_see(options, SKOPOS_RPC_TARGET_INTERNAL_RDMA_TRANSFER,
                                "HTTP/2 sends a request as one stream, and has no second transfer for a part of it");
  skopos_rpc_options_cannot_see(options, SKOPOS_RPC_TARGET_HANDLER,
                                "gRPC makes interceptors in the thread of the handler, after the wait for it");
  skopos_rpc_options_cannot_see(options, SKOPOS_RPC_ORIGIN_COMPLETION_CALLBACK,
                                "the arrival of a response is inside of gRPC, below its interceptors");
  const skopos_rpc_recorder *recorder = nullptr;
  if (skopos_rpc_start(options, &recorder) != SKOPOS_RPC_OK) throw std::runtime_error(skopos_rpc_last_error());
  return recorder;
}

// Records the calls of the server that `builder` makes. It replaces the interceptors that were set before.
inline void record(grpc::ServerBuilder &builder, const skopos_rpc_recorder *recorder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> makers;
  makers.push_back(std::make_unique<ServerFactory>(recorder));
  builder.experimental().SetInterceptorCreators(std::move(makers));
}

// Returns a channel whose calls are recorded. `peer` names the service behind it.
inline std::shared_ptr<grpc::Channel> channel(const skopos_rpc_recorder *recorder, const std::string &target,
                                              const std::shared_ptr<grpc::ChannelCredentials> &credentials,
                                              const std::string &peer = "",
                                              const grpc::ChannelArguments &arguments = grpc::ChannelArguments()) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> makers;
  makers.push_back(std::make_unique<ClientFactory>(recorder, peer));
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments, std::move(makers));
}

}  // namespace skopos::rpc

#endif
