# One transfer over a chain of four nodes in ns-2, with listed packets and acknowledgements dropped.
# Arguments: flavour, sink, dropped packets, packets, window, initial ssthresh, minrto, further Tcl,
# dropped acknowledgements, trace file. Lists count from 0; "-" is an empty one.
foreach {flavour sinktype drops packets window ssthresh minrto extra ackdrops tracefile} $argv {}
set ns [new Simulator]
foreach i {0 1 2 3} { set n($i) [$ns node] }
foreach {a b delay} {0 1 1ms 1 2 48ms 2 3 1ms} {
    $ns duplex-link $n($a) $n($b) 10Mb $delay DropTail
    $ns queue-limit $n($a) $n($b) 100000
    $ns queue-limit $n($b) $n($a) 100000
}
set tcp [new Agent/TCP/$flavour]
set sink [new Agent/TCPSink$sinktype]
$tcp set packetSize_ 1400
$tcp set useHeaders_ false
$tcp set window_ $window
$tcp set minrto_ $minrto
# Round trips of this chain meet the usual 100 ms exactly.
catch { $sink set interval_ 98.7ms }
eval $extra
$ns attach-agent $n(0) $tcp
$ns attach-agent $n(3) $sink
$ns connect $tcp $sink
set trace [open $tracefile w]
$ns trace-queue $n(0) $n(1) $trace
$ns trace-queue $n(2) $n(3) $trace
$ns trace-queue $n(3) $n(2) $trace
foreach {a b list} [list 1 2 $drops 2 1 $ackdrops] {
    if {$list == "-"} continue
    set em [new ErrorModel/List]
    $em unit pkt
    $em droplist $list
    $em drop-target [new Agent/Null]
    $ns lossmodel $em $n($a) $n($b)
}
# "run" resets every agent, so the threshold is set afterwards.
$ns at 0.0 "$tcp set ssthresh_ $ssthresh; $tcp advanceby $packets"
$tcp proc done {} {
    global ns tcp trace
    puts "DONE [$ns now] [$tcp set nrexmit_] [$tcp set ncwndcuts_]"
    close $trace
    exit 0
}
$ns at 400.0 "exit 1"
$ns run
