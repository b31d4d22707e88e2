// SPDX-License-Identifier: Apache-2.0
//
// TCP NewReno in ns-3, on the networks on which main.go has the simulator carry Linux's reno: a dumbbell, or a FatTree.
// Prints the goodput of all flows together in Mbit/s, over the seconds after the warm-up, how often packets passed a
// link in all, and the seconds of processor time that took.
//
//   network dumbbell FLOWS MBPS DELAY_US QUEUE WARMUP SECONDS SEED
//   network fattree  PORTS MBPS DELAY_US QUEUE WARMUP SECONDS SEED

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <cstdio>
#include <string>
#include <sys/resource.h>
#include <vector>

using namespace ns3;

static uint64_t hops;

static void
Hop(Ptr<const Packet>)
{
    hops++;
}

// Links are numbered, each a subnet of its own.
struct Network
{
    std::string mbps, delay;
    uint32_t queue;
    Ipv4AddressHelper addresses{"10.0.0.0", "255.255.255.252"};

    // Join links two nodes, and returns their addresses.
    Ipv4InterfaceContainer Join(Ptr<Node> a, Ptr<Node> b, bool limited = true)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", StringValue(limited ? mbps + "Mbps" : "100Gbps"));
        link.SetChannelAttribute("Delay", StringValue(limited ? delay + "us" : "0us"));
        link.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(QueueSize(PACKETS, limited ? queue : 100000)));
        NetDeviceContainer devices = link.Install(a, b);
        Ipv4InterfaceContainer ends = addresses.Assign(devices);
        addresses.NewNetwork();
        TrafficControlHelper{}.Uninstall(devices); // the device has the only queue
        for (uint32_t i = 0; limited && i < 2; i++)
        {
            devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Hop));
        }
        return ends;
    }
};

static std::vector<Ptr<PacketSink>> sinks;

// Flow has one host send to another without end, from some time within the first 100 ms on.
static void
Flow(Ptr<Node> from, Ptr<Node> to, Ipv4Address address, Ptr<UniformRandomVariable> random)
{
    static uint16_t port = 5000;
    port++;
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    sinks.push_back(DynamicCast<PacketSink>(sink.Install(to).Get(0)));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(address, port));
    bulk.SetAttribute("SendSize", UintegerValue(65536));
    bulk.Install(from).Start(Seconds(random->GetValue(0, 0.1)));
}

static uint64_t
Received()
{
    uint64_t sum = 0;
    for (auto& s : sinks)
    {
        sum += s->GetTotalRx();
    }
    return sum;
}

static void
Dumbbell(Network& net, int flows, Ptr<UniformRandomVariable> random)
{
    NodeContainer hosts, routers;
    hosts.Create(2 * flows);
    routers.Create(2);
    InternetStackHelper{}.Install(hosts);
    InternetStackHelper{}.Install(routers);
    net.Join(routers.Get(0), routers.Get(1));
    for (int i = 0; i < flows; i++)
    {
        net.Join(hosts.Get(i), routers.Get(0), false);
        auto ends = net.Join(hosts.Get(flows + i), routers.Get(1), false);
        Flow(hosts.Get(i), hosts.Get(flows + i), ends.GetAddress(0), random);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
}

// FatTree is that of Al-Fares et al. Where there are several ways up, a switch has drawn one for each host: ns-3's own choice among equal routes is by the packet, which TCP takes for loss.
static void
FatTree(Network& net, int ports, Ptr<UniformRandomVariable> random)
{
    const int half = ports / 2, edges = ports * half, count = edges * half;
    NodeContainer hosts, edge, aggregation, core;
    hosts.Create(count);
    edge.Create(edges);
    aggregation.Create(edges);
    core.Create(half * half);
    Ipv4StaticRoutingHelper fixed;
    InternetStackHelper stack;
    stack.SetRoutingHelper(fixed);
    for (auto& nodes : {hosts, edge, aggregation, core})
    {
        stack.Install(nodes);
    }
    auto table = [&](Ptr<Node> n) { return fixed.GetStaticRouting(n->GetObject<Ipv4>()); };
    // The links of hosts have a subnet within that of their switch at the edge.
    auto subnet = [](int at, int host) { return Ipv4Address((10u << 24) + (128u << 16) + (at << 8) + 4 * host); };
    const Ipv4Mask ofLink("255.255.255.252"), ofEdge("255.255.255.0");
    std::vector<Ipv4Address> names;
    std::vector<std::vector<uint32_t>> up(edges), upper(edges);
    for (int e = 0; e < edges; e++)
    {
        for (int h = 0; h < half; h++)
        {
            auto host = hosts.Get(e * half + h);
            net.addresses.SetBase(subnet(e, h), ofLink);
            auto ends = net.Join(host, edge.Get(e));
            table(host)->SetDefaultRoute(ends.GetAddress(1), ends.Get(0).second);
            names.push_back(ends.GetAddress(0));
        }
    }
    net.addresses.SetBase("10.0.0.0", ofLink);
    for (int e = 0; e < edges; e++)
    {
        const int pod = e / half;
        for (int a = 0; a < half; a++)
        {
            auto ends = net.Join(edge.Get(e), aggregation.Get(pod * half + a));
            up[e].push_back(ends.Get(0).second);
            table(aggregation.Get(pod * half + a))->AddNetworkRouteTo(subnet(e, 0), ofEdge, ends.Get(1).second);
        }
    }
    for (int a = 0; a < edges; a++)
    {
        for (int c = 0; c < half; c++)
        {
            auto to = core.Get(a % half * half + c);
            auto ends = net.Join(aggregation.Get(a), to);
            upper[a].push_back(ends.Get(0).second);
            for (int e = a / half * half; e < a / half * half + half; e++)
            {
                table(to)->AddNetworkRouteTo(subnet(e, 0), ofEdge, ends.Get(1).second);
            }
        }
    }
    auto draw = [&] { return random->GetInteger(0, half - 1); };
    for (int s = 0; s < edges; s++)
    {
        for (int e = 0; e < edges; e++)
        {
            if (e != s)
            {
                for (int h = 0; h < half; h++)
                {
                    table(edge.Get(s))->AddNetworkRouteTo(subnet(e, h), ofLink, up[s][draw()]);
                }
            }
            for (int h = 0; h < half && e / half != s / half; h++)
            {
                table(aggregation.Get(s))->AddNetworkRouteTo(subnet(e, h), ofLink, upper[s][draw()]);
            }
        }
    }
    for (int h = 0; h < count; h++)
    {
        int to = random->GetInteger(0, count - 2);
        to += to >= h;
        Flow(hosts.Get(h), hosts.Get(to), names[to], random);
    }
}

int
main(int argc, char** argv)
{
    if (argc != 9)
    {
        std::fprintf(stderr, "usage: network dumbbell|fattree SIZE MBPS DELAY_US QUEUE WARMUP SECONDS SEED\n");
        return 2;
    }
    const double warmup = std::stod(argv[6]), seconds = std::stod(argv[7]);
    RngSeedManager::SetSeed(1 + std::stoul(argv[8]));
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Network net{argv[3], argv[4], static_cast<uint32_t>(std::stoul(argv[5]))};
    auto random = CreateObject<UniformRandomVariable>();
    (std::string(argv[1]) == "dumbbell" ? Dumbbell : FatTree)(net, std::stoi(argv[2]), random);
    uint64_t before = 0;
    Simulator::Schedule(Seconds(warmup), [&] { before = Received(); });
    Simulator::Stop(Seconds(warmup + seconds));
    auto processor = [] {
        rusage used;
        getrusage(RUSAGE_SELF, &used);
        return used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6;
    };
    const double began = processor();
    Simulator::Run();
    const double took = processor() - began;
    std::printf("%.6f %lu %.3f\n", (Received() - before) * 8 / seconds / 1e6, hops, took);
    Simulator::Destroy();
}
