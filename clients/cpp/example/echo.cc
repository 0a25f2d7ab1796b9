// An echo service and its client, whose calls are recorded.
//
//     echo serve FOLDER [NEXT]   serves on a free port, prints the address, and ends with its input
//     echo call ADDRESS FOLDER   calls Say once
//
// Relay calls the service at NEXT.

#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "echo.grpc.pb.h"
#include "skopos_grpc.hpp"

namespace {

std::unique_ptr<echo::Echo::Stub> stub(const skopos_rpc_recorder *recorder, const std::string &address) {
  return echo::Echo::NewStub(skopos::rpc::channel(recorder, address, grpc::InsecureChannelCredentials(), "echo"));
}

class Service final : public echo::Echo::Service {
 public:
  explicit Service(std::unique_ptr<echo::Echo::Stub> next) : next_(std::move(next)) {}

  grpc::Status Say(grpc::ServerContext *, const echo::Text *request, echo::Text *response) override {
    response->set_text(request->text());
    return request->text() == "fail" ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "as asked")
                                     : grpc::Status::OK;
  }

  grpc::Status Relay(grpc::ServerContext *, const echo::Text *request, echo::Text *response) override {
    grpc::ClientContext context;
    return next_ ? next_->Say(&context, *request, response)
                 : grpc::Status(grpc::StatusCode::UNAVAILABLE, "there is no next service");
  }

 private:
  std::unique_ptr<echo::Echo::Stub> next_;
};

int serve(const std::string &folder, const std::string &next) {
  const auto *recorder = skopos::rpc::start("cpp-server", folder);
  Service service(next.empty() ? nullptr : stub(recorder, next));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  skopos::rpc::record(builder, recorder);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << "127.0.0.1:" << port << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  server->Shutdown();
  server->Wait();
  return skopos_rpc_close(recorder) == SKOPOS_RPC_OK ? 0 : 1;
}

int call(const std::string &address, const std::string &folder) {
  const auto *recorder = skopos::rpc::start("cpp-client", folder);
  echo::Text request, response;
  request.set_text("hello");
  {
    grpc::ClientContext context;
    const auto status = stub(recorder, address)->Say(&context, request, &response);
    if (!status.ok()) std::cerr << status.error_message() << std::endl;
  }
  const bool is_closed = skopos_rpc_close(recorder) == SKOPOS_RPC_OK;
  return is_closed && response.text() == "hello" ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "serve" && argc >= 3) return serve(argv[2], argc > 3 ? argv[3] : "");
  if (command == "call" && argc == 4) return call(argv[2], argv[3]);
  std::cerr << "usage: echo serve FOLDER [NEXT] | echo call ADDRESS FOLDER" << std::endl;
  return 2;
}
