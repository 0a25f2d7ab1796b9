"""Reads load reports with grpcio and the published messages of ORCA (the package xds-protos), at the address of the argument."""

import sys

import grpc
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport
from xds.service.orca.v3.orca_pb2 import OrcaLoadReportRequest

channel = grpc.insecure_channel(sys.argv[1])
request = OrcaLoadReportRequest()
request.report_interval.seconds = 1
stream = channel.unary_stream(
    "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
    request_serializer=OrcaLoadReportRequest.SerializeToString,
    response_deserializer=OrcaLoadReport.FromString,
)
reports = stream(request, timeout=180)
for _ in range(2):
    report = next(reports)
reports.cancel()
# The trailer of a response is taken by the library itself.
print(report.application_utilization, dict(report.named_metrics), dict(report.utilization), report.cpu_utilization)
